"""Every option of an evaluation and its default, in one frozen value."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from eval import preprocessing, suites
from eval.corruptions import NAMES as CORRUPTIONS
from train import methods, models
from train.data import sources

GRADIENT_ATTACKS = ("fgsm", "pgd", "apgd_ce", "apgd_dlr", "apgd_targeted")
ATTACKS = (*GRADIENT_ATTACKS, "square")
ATTACKERS = ("unaware", "straight-through", "exact", "black-box")

# Where files lie, and which measurements are made: a folder may be given more of them later. All
# else decides what the numbers are.
_FREE = frozenset(
    {
        *("run", "weights", "data_dir", "out", "num_workers", "samples", "suite", "levels"),
        *("preprocess", "corruptions", "severities", "scales", "attacks", "attackers"),
        *("epsilons", "sanity_epsilon"),
    }
)

# How hard `--budget` attacks: a first look within minutes on a CPU, or what papers report.
_BUDGETS: dict[str, dict[str, int]] = {
    "quick": {"attack_limit": 256, "pgd_steps": 20, "apgd_steps": 20, "queries": 300},
    "standard": {"attack_limit": 1000, "pgd_steps": 50, "apgd_steps": 100, "queries": 5000},
}
_COUNTS = (
    *("limit", "batch_size", "attack_limit", "pgd_steps", "apgd_steps", "restarts", "queries"),
    *("draws", "resize", "image_size", "patch_size"),
)


def _choice(names: tuple[str, ...]) -> Any:
    return tyro.conf.arg(metavar="|".join(names))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Measure how robust a trained network is, on test data as they are and preprocessed.

    Give --run, the folder of a finished training, or --weights with --model and --dataset. Results
    go to --out, a line each in results.jsonl, with report.html and report.md; the same command
    continues an evaluation that was interrupted. Two more commands: `report DIR...` makes one page
    of many evaluations, `figure NAME` draws one of the paper's figures.

    Attributes:
        run: folder of a finished training.
        weights: .safetensors file, in place of a run.
        model: the network that the weights are for.
        dataset: whose test images to use; by default the run's.
        data_dir: where the data set's files lie.
        method: how the weights were trained; decides what `--preprocess paper` does.
        sparsity: the level of smoothing; by default the run's, or the data set's in the paper.
        suite: which suites to run; all of them by default.
        preprocess: what is done to test images first, a column each: `none` leaves them as they
            are, `paper` does what the run's method does (smooths at its level, or blurs), `soft`
            smooths at 0.4 and keeps shading, `auto` smooths an image as much as its noise asks for.
        limit: use so many test images.
        out: folder for the results; by default RUN/eval, or one under runs/ named after the weights.
        seed: of noise and attacks.
        batch_size: images in a step, on all devices together.
        num_workers: processes that decode streamed pictures.
        levels: of smoothing, in the suite `clean`, where `paper` is among --preprocess.
        corruptions: which ones; all 18 by default.
        severities: which ones, of 1 to 5.
        published: folder of CIFAR-10-C, CIFAR-100-C or ImageNet-C, to read in place of corrupting.
        scales: of the suite `lowres`; by default 1/4 and 1/2, for large images 1/7 and 1/4.
        radius: of the disc that parts low from high frequencies.
        budget: `quick` takes minutes on a CPU and says so in the report; `standard` is what papers
            report. --attack-limit, --pgd-steps, --apgd-steps and --queries follow it.
        attack_limit: attack so many test images.
        pgd_steps: of PGD.
        apgd_steps: of APGD.
        queries: of Square.
        restarts: of PGD and APGD.
        draws: passes to average over, where the network is random; 1 or, for random ones, 8.
        attacks: which ones.
        attackers: what the attacker knows of the preprocessing; each attacks behind each one.
        epsilons: greatest change of a pixel, in 1/255.
        sanity_epsilon: one more, so large that no network should survive; 0 for none.
        epsilon_unit: of epsilon: pixels, or the network's normalised input (the paper may mean that).
        samples: images shown in the report.
        image_size: side of streamed pictures after cropping.
        resize: side to which images are brought before the network.
        stem: of resnet18 and resnet50.
        patch_size: of vit_tiny.
        precision: of the computation; by default the run's, or float32.
    """

    run: Path | None = None
    weights: Path | None = None
    model: Annotated[str | None, _choice(models.NAMES)] = None
    dataset: Annotated[str | None, _choice(sources.CHOICES)] = None
    data_dir: Path | None = None
    method: Annotated[str | None, _choice(methods.NAMES)] = None
    sparsity: float | None = None
    suite: Annotated[tuple[str, ...], _choice(suites.NAMES)] = suites.NAMES
    preprocess: Annotated[tuple[str, ...], _choice(preprocessing.NAMES)] = (
        preprocessing.BARE,
        preprocessing.PAPER,
    )
    limit: int | None = None
    out: Path | None = None
    seed: int = 0
    batch_size: int = 256
    num_workers: int = 4
    levels: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    corruptions: Annotated[tuple[str, ...], _choice(CORRUPTIONS)] = CORRUPTIONS
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    published: Path | None = None
    scales: tuple[str, ...] | None = None
    radius: float = 6.0
    budget: Literal["quick", "standard"] = "quick"
    attack_limit: int | None = None
    pgd_steps: int | None = None
    apgd_steps: int | None = None
    queries: int | None = None
    restarts: int = 1
    draws: int | None = None
    attacks: Annotated[tuple[str, ...], _choice(ATTACKS)] = (
        *("fgsm", "pgd", "apgd_ce", "apgd_dlr", "square"),
    )
    attackers: Annotated[tuple[str, ...], _choice(ATTACKERS)] = ATTACKERS
    epsilons: tuple[float, ...] = (8, 16)
    sanity_epsilon: float = 64
    epsilon_unit: Literal["pixels", "normalised"] = "pixels"
    samples: int = 8
    image_size: int | None = None
    resize: int | None = None
    stem: Literal["3x3", "7x7"] | None = None
    patch_size: int | None = None
    precision: Literal["float32", "bfloat16"] | None = None

    def __post_init__(self) -> None:
        if (self.run is None) == (self.weights is None):
            raise ValueError("give either --run DIR, or --weights FILE with --model and --dataset")
        if self.weights is not None and (self.model is None or self.dataset is None):
            raise ValueError("--weights needs --model and --dataset")
        for name in ("model", "method", "stem", "patch_size", "resize", "image_size"):
            if self.run is not None and getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} comes from the run; leave it out beside --run")
        _check_names("suite", self.suite, suites.NAMES)
        _check_names("preprocess", self.preprocess, preprocessing.NAMES)
        _check_names("attacks", self.attacks, ATTACKS)
        _check_names("attackers", self.attackers, ATTACKERS)
        if self.published is None:
            _check_names("corruptions", self.corruptions, CORRUPTIONS)
        _check_each("severities", self.severities, "1 to 5", lambda v: v in range(1, 6))
        _check_each("levels", self.levels, "a level in [0, 1]", lambda v: 0 <= v <= 1)
        _check_each("epsilons", self.epsilons, "1/255 above 0", lambda v: 0 < v <= 255)
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')}: expected 1 or more, got {value}")
        for name in ("radius", "sanity_epsilon", "samples", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name.replace('_', '-')}: expected 0 or more")

    def filled(self) -> "Options":
        """With the budget's values where none were given."""
        missing: dict[str, Any] = {
            name: value
            for name, value in _BUDGETS[self.budget].items()
            if getattr(self, name) is None
        }
        return dataclasses.replace(self, **missing)

    def identity(self) -> dict[str, Any]:
        """The options that the numbers depend on, as plain JSON."""
        values = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in dataclasses.asdict(self).items()
            if name not in _FREE
        }
        plain: dict[str, Any] = json.loads(json.dumps(values))
        return plain

    def digest(self) -> str:
        """Short name of `identity`."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _check_names(option: str, names: tuple[str, ...], choices: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in choices]
    if unknown or not names:
        came = ", ".join(map(repr, unknown)) or "none"
        raise ValueError(f"--{option}: unknown {came}; choose among {', '.join(choices)}")


def _check_each(option: str, values: tuple[Any, ...], expected: str, holds: Any) -> None:
    bad = [value for value in values if not holds(value)]
    if bad or not values:
        raise ValueError(f"--{option}: expected {expected}, got {bad or 'nothing'}")
