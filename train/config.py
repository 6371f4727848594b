"""Every option of a training run and its default, in one frozen value that travels as JSON."""

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from isvs import Speckle, _checks
from train import methods, models
from train.data import sources

_RECIPE = tyro.conf.arg(help_behavior_hint="(default: the data set's recipe)")
_MODEL = tyro.conf.arg(
    metavar="|".join(models.NAMES), help_behavior_hint="(default: the data set's recipe)"
)
_OPTION = tyro.conf.arg(help_behavior_hint="(default: the method's recipe)")
_STIFFNESS = tyro.conf.arg(help_behavior_hint="(default: inf)")
_SPECKLE_AREA = tyro.conf.arg(help_behavior_hint="(default: speckle stays)")
_SPECKLE_CONTRAST = tyro.conf.arg(help_behavior_hint=f"(default: {Speckle.contrast})")
_METHOD = tyro.conf.arg(metavar="|".join(methods.NAMES))
_DATASET = tyro.conf.arg(metavar="|".join(sources.CHOICES))

# Where results go and how fast they come, but not what they are: a run continues when these change.
_FREE = frozenset(
    {
        *("out", "data_dir", "cache_dir", "num_workers", "log_every", "checkpoint_every"),
        *("profile", "coordinator", "num_processes", "process_id"),
    }
)

_COUNTS = (
    *("lbi_steps", "epochs", "batch_size", "limit_train", "limit_test", "image_size", "resize"),
    *("patch_size", "eval_every", "eval_batch_size", "log_every", "checkpoint_every"),
    *("num_processes", "attack_steps", "speckle_area"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Train an image classifier, on its images as they are or on their large scale.

    Options left out take the recipe of the data set (train/presets.py) or of the method
    (docs/methods.md). Starting again with the same --out continues where the run stopped. --config
    FILE repeats the run whose config.json it is; other options beside it change it.

    Attributes:
        dataset: what to learn from; `shapes` is drawn by the program and needs no files.
        data_dir: where the data set's files lie.
        model: the network.
        method: what the network is shown in training, or what else is done (docs/methods.md).
        view: what the other methods are shown: images as they are, blurred, or smoothed as `fix` or
            `iterative` would.
        sparsity: the level of smoothing, the share of neighbouring pixel pairs that may differ:
            0 is a flat image, 1 the original. For `iterative`, the level at the end.
        sparsity_from: the level at the start, for `iterative`.
        iterate: how `iterative` smooths: `path` reads each image's stored scale space at a level
            that rises with the steps; `lbi` carries the paper's iteration along for each image.
        stiffness: of what ties the pixels of a region, from 0 to 10000 or `inf`: with `inf` they
            all become their mean, as in the paper; finite ties keep what varies slowly.
        speckle_area: remove spots of at most so many pixels before smoothing.
        speckle_contrast: by how much, at least, such a spot differs from every pixel next to it.
        lbi_steps: steps of the iteration each time an image is visited, for `lbi`.
        blur_sigma: standard deviation in pixels, for `blur`.
        blur_kernel: side of the kernel in pixels, odd, for `blur`.
        attack_epsilon: greatest change of a pixel (of range 1) in adversarial images.
        attack_step: change of every pixel in a step of the attack.
        attack_steps: steps of the attack, from a random start.
        attack_through: what is attacked: the images that the `view` shows; or raw pixels before
            `smoothing`, which every step of the attack then computes anew.
        trades_beta: weight of the divergence between clean and adversarial images; 0 trains
            `adversarial` and `awp` on adversarial images alone, and `sat` on clean ones alone.
        sat_start: epoch from which the targets of `sat` move.
        awp_gamma: how far `awp` moves each weight tensor, as a share of its norm.
        awp_warmup: epochs before `awp` begins to.
        pni_granularity: what shares an amplitude of the noise of `pni`.
        layer: which layer `tv_layer` puts behind the stem: the total variation layer, or this
            package's smoothing.
        tv_form: of the total variation layer: the solution, or 2 x - solution.
        tv_initial: strength of the total variation layer before it learns.
        layer_level: level of the smoothing layer; of a scheduled one, at the end.
        layer_mode: whether this level stays, is learned, or rises with the steps.
        layer_level_from: the level at the start, if it is scheduled.
        augmix_severity: greatest strength of AugMix's operations, of 10.
        jsd_weight: of AugMix's divergence.
        noise_sigma: standard deviation of the noise that `noise` adds to half of a batch.
        epochs: passes over the training images.
        batch_size: images in a step, on all devices together.
        learning_rate: its highest value, after warming up.
        optimizer: SGD with Nesterov momentum, or AdamW.
        momentum: of SGD.
        weight_decay: on kernels alone, not on biases, normalisation and embeddings.
        warmup_epochs: over which the learning rate rises from 0; then it falls along a cosine.
        label_smoothing: share of the target spread over all classes.
        clip_norm: longest gradient, a longer one is shortened; 0 for no bound.
        ema_decay: of the averaged weights, which are then evaluated and written; 0 for none.
        crop_padding: greatest random shift in pixels, for images held in memory.
        flip: whether to mirror half of the images.
        seed: of the weights, the order, the augmentation and the drawn data.
        out: folder of the run; by default one under runs/ named after the options.
        init_from: weights to start from, a .safetensors file.
        limit_train: use so many training images.
        limit_test: use so many test images.
        precision: of the computation; weights and their sums are float32 always.
        image_size: side of streamed pictures after cropping.
        resize: side to which images are brought on the device, after smoothing.
        stem: of resnet18 and resnet50.
        patch_size: of vit_tiny.
        noise: standard deviation of the noise in the closing table.
        eval_every: epochs between two evaluations.
        eval_batch_size: images in a step of evaluation.
        log_every: steps between two lines of metrics.jsonl.
        checkpoint_every: steps between two checkpoints; by default once an epoch.
        cache_dir: where entry-level codes are kept; by default the user's cache folder.
        num_workers: processes that decode streamed pictures.
        profile: write a trace of some steps, for TensorBoard or Perfetto.
        coordinator: HOST:PORT of the first process, for several hosts; `auto` asks the cluster.
        num_processes: how many processes take part, unless the cluster knows.
        process_id: which one this is, unless the cluster knows.
    """

    dataset: Annotated[str, _DATASET] = "shapes"
    data_dir: Path | None = None
    model: Annotated[str | None, _MODEL] = None
    method: Annotated[str, _METHOD] = "iterative"
    view: Annotated[Literal["raw", "blur", "fix", "iterative"] | None, _OPTION] = None
    sparsity: Annotated[float | None, _RECIPE] = None
    sparsity_from: Annotated[float | None, _RECIPE] = None
    iterate: Literal["path", "lbi"] = "path"
    stiffness: Annotated[float | None, _STIFFNESS] = None
    speckle_area: Annotated[int | None, _SPECKLE_AREA] = None
    speckle_contrast: Annotated[float | None, _SPECKLE_CONTRAST] = None
    lbi_steps: Annotated[int | None, _RECIPE] = None
    blur_sigma: float = 2.0
    blur_kernel: Annotated[int | None, _RECIPE] = None
    attack_epsilon: Annotated[float | None, _OPTION] = None
    attack_step: Annotated[float | None, _OPTION] = None
    attack_steps: Annotated[int | None, _OPTION] = None
    attack_through: Annotated[Literal["view", "smoothing"] | None, _OPTION] = None
    trades_beta: Annotated[float | None, _OPTION] = None
    sat_start: Annotated[int | None, _OPTION] = None
    awp_gamma: Annotated[float | None, _OPTION] = None
    awp_warmup: Annotated[float | None, _OPTION] = None
    pni_granularity: Annotated[Literal["layer", "channel", "element"] | None, _OPTION] = None
    layer: Annotated[Literal["tv", "isvs"] | None, _OPTION] = None
    tv_form: Annotated[Literal["smooth", "sharp"] | None, _OPTION] = None
    tv_initial: Annotated[float | None, _OPTION] = None
    layer_level: Annotated[float | None, _OPTION] = None
    layer_mode: Annotated[Literal["fixed", "learned", "scheduled"] | None, _OPTION] = None
    layer_level_from: Annotated[float | None, _OPTION] = None
    augmix_severity: Annotated[float | None, _OPTION] = None
    jsd_weight: Annotated[float | None, _OPTION] = None
    noise_sigma: Annotated[float | None, _OPTION] = None
    epochs: Annotated[int | None, _RECIPE] = None
    batch_size: Annotated[int | None, _RECIPE] = None
    learning_rate: Annotated[float | None, _RECIPE] = None
    optimizer: Annotated[Literal["sgd", "adamw"] | None, _RECIPE] = None
    momentum: float = 0.9
    weight_decay: Annotated[float | None, _RECIPE] = None
    warmup_epochs: Annotated[float | None, _RECIPE] = None
    label_smoothing: float = 0.0
    clip_norm: float = 0.0
    ema_decay: float = 0.0
    crop_padding: Annotated[int | None, _RECIPE] = None
    flip: bool = True
    seed: int = 0
    out: Path | None = None
    init_from: Path | None = None
    limit_train: Annotated[int | None, _RECIPE] = None
    limit_test: Annotated[int | None, _RECIPE] = None
    precision: Literal["float32", "bfloat16"] = "float32"
    image_size: int | None = None
    resize: int | None = None
    stem: Literal["3x3", "7x7"] | None = None
    patch_size: int | None = None
    noise: Annotated[float | None, _RECIPE] = None
    eval_every: Annotated[int | None, _RECIPE] = None
    eval_batch_size: int = 256
    log_every: int = 20
    checkpoint_every: int | None = None
    cache_dir: Path | None = None
    num_workers: int = 4
    profile: bool = False
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    def __post_init__(self) -> None:
        self._check_names()
        self._check_ranges()
        if self.stiffness == math.inf:
            # As if it had been left out: one run has one name, and JSON has no infinity.
            object.__setattr__(self, "stiffness", None)
        self._check_contradictions()

    def _check_names(self) -> None:
        kind, separator, argument = self.dataset.partition(":")
        kinds = {choice.partition(":")[0] for choice in sources.CHOICES if ":" in choice}
        plain = self.dataset in sources.CHOICES and not separator
        if not plain and not (kind in kinds and argument):
            raise _unknown("dataset", self.dataset, sources.CHOICES)
        # Names with an underscore are for tests: not offered, but accepted.
        if self.model is not None:
            models.check_options(self.model, stem=self.stem, patch_size=self.patch_size)
        if self.method not in methods.NAMES:
            raise _unknown("method", self.method, methods.NAMES)

    def _check_ranges(self) -> None:
        for name in ("sparsity", "sparsity_from", "layer_level", "layer_level_from"):
            _check(self, name, "a level in [0, 1]", lambda v: 0 <= v <= 1)
        for name in ("label_smoothing", "momentum", "ema_decay"):
            _check(self, name, "0 or more and below 1", lambda v: 0 <= v < 1)
        for name in (
            *("weight_decay", "warmup_epochs", "clip_norm", "noise", "trades_beta", "awp_gamma"),
            *("awp_warmup", "jsd_weight", "noise_sigma"),
        ):
            _check(self, name, "0 or more", lambda v: 0 <= v < math.inf)
        for name in ("learning_rate", "blur_sigma", "tv_initial"):
            _check(self, name, "above 0", lambda v: 0 < v < math.inf)
        stiffest = _checks.STIFFEST
        _check(
            self,
            "stiffness",
            f"a number in [0, {stiffest:g}] or inf",
            lambda v: 0 <= v <= stiffest or v == math.inf,
        )
        for name in ("attack_epsilon", "attack_step", "speckle_contrast"):
            _check(self, name, "a share of the pixels' range, in (0, 1]", lambda v: 0 < v <= 1)
        _check(self, "augmix_severity", "a strength in [0.1, 10]", lambda v: 0.1 <= v <= 10)
        for name in ("crop_padding", "seed", "num_workers", "process_id", "sat_start"):
            _check(self, name, "0 or more", lambda v: v >= 0)
        for name in _COUNTS:
            _check(self, name, "1 or more", lambda v: v >= 1)
        _check(self, "blur_kernel", "an odd number of pixels", lambda v: v >= 1 and v % 2 == 1)

    def _check_contradictions(self) -> None:
        methods.options.check(self)
        if self.lbi_steps is not None and self.iterate != "lbi":
            raise ValueError("--lbi-steps needs --iterate lbi")
        if None not in (self.sparsity, self.sparsity_from) and self.sparsity_from > self.sparsity:  # type: ignore[operator]
            raise ValueError(
                f"--sparsity-from {self.sparsity_from} must not be above --sparsity {self.sparsity}"
            )
        for name in ("warmup_epochs", "sat_start", "awp_warmup"):
            value = getattr(self, name)
            # What begins after the last epoch never acts.
            if None not in (value, self.epochs) and value >= self.epochs:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} {value} must be below --epochs {self.epochs}")
        if self.coordinator is None and (self.num_processes or self.process_id) is not None:
            raise ValueError("--num-processes and --process-id need --coordinator HOST:PORT")

    def to_json(self) -> str:
        """All options, as text that `from_json` reads."""
        values = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in dataclasses.asdict(self).items()
        }
        return json.dumps(values, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, origin: str = "configuration") -> "Config":
        """The options in a text; those left out take their defaults.

        Args:
            text: as `to_json` writes it.
            origin: named in errors, a file say.

        Raises:
            ValueError: for an unknown name, or a value of another type.
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{origin}: not JSON ({error})") from error
        if not isinstance(values, dict):
            raise ValueError(f"{origin}: expected an object of options, got {values!r}")
        hints = typing.get_type_hints(cls)
        unknown = sorted(values.keys() - hints.keys())
        if unknown:
            raise ValueError(f"{origin}: unknown options {unknown}; known are {sorted(hints)}")
        return cls(
            **{name: _typed(origin, name, value, hints[name]) for name, value in values.items()}
        )

    def identity(self) -> dict[str, Any]:
        """The options that decide what comes out of a run, and nothing else."""
        values = json.loads(self.to_json())
        return {name: value for name, value in values.items() if name not in _FREE}

    def digest(self) -> str:
        """Short name of `identity`; options that nobody gave leave no mark, so that new ones do not either."""
        given = {name: value for name, value in self.identity().items() if value is not None}
        text = json.dumps(given, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Where two `Config.identity` disagree, as lines."""
    return [
        f"--{name.replace('_', '-')}: was {old.get(name)!r}, now {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _unknown(option: str, value: str, choices: tuple[str, ...]) -> ValueError:
    return ValueError(f"--{option}: unknown {value!r}; choose one of {', '.join(choices)}")


def _check(config: Config, name: str, expected: str, holds: Any) -> None:
    value = getattr(config, name)
    if value is not None and not holds(value):
        raise ValueError(f"--{name.replace('_', '-')}: expected {expected}, got {value}")


def _typed(origin: str, name: str, value: Any, hint: Any) -> Any:
    """A JSON value as the type of its field, or an error that names both."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = typing.get_args(hint) if is_union else (hint,)
    for option in options:
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return value
        elif option is Path and isinstance(value, str):
            return Path(value)
        elif option is float and type(value) in (int, float):
            return float(value)
        elif type(value) is option:
            return value
    raise ValueError(f"{origin}: {name}: expected {hint}, got {value!r}")
