"""`spectra`: frequencies in the first features of a network, while it learns."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import nnx
from matplotlib.figure import Figure

from eval import frequency
from eval.figures import base
from train import methods, models, presets, run_folder
from train.config import Config
from train.data.sources import open_source
from train.setup import build_model

Weights = tuple[nnx.State, nnx.State]

_BATCH = 64

# Orbax warns of files that our checkpoints lack and nobody needs; failures raise anyway.
logging.getLogger("absl").setLevel(logging.ERROR)


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw spectra of a network's first features over the checkpoints of its training.

    A run keeps its last checkpoints, its best weights and its final ones. These are drawn, and the
    initial weights, which follow from the run's seed.

    Attributes:
        run: folder of the training; it may still be going on.
        data_dir: where the data set's files lie, if they have moved.
        limit: how many test images.
        feature: name of the features: stem of a ResNet; tokens of a ViT have no grid here.
        out: where the figure goes; .png, .pdf or .svg.
    """

    run: Path
    data_dir: Path | None = None
    limit: int = 256
    feature: str = "stem"
    out: Path = Path("figures/spectra.png")


def feature_power(
    graph: nnx.GraphDef[models.Classifier],
    weights: Weights,
    images: np.ndarray,
    feature: str,
    *,
    resize: int | None = None,
) -> np.ndarray:
    """Mean power of a network's features at every frequency, as shares that add up to one.

    Args:
        graph: of the model.
        weights: parameters and running averages.
        images: uint8 [N, H, W, C].
        feature: name of an activation [B, H', W', K].
        resize: side to which the network wants its images brought first.

    Returns:
        [H', W'], centred; frequency zero, the features' mean, is left out (0).

    Raises:
        ValueError: if the model has no such features.
    """

    @jax.jit
    def power(weights: Weights, pixels: jax.Array) -> jax.Array:
        plain = pixels.astype(jnp.float32) / 255
        if resize is not None:
            shape = (len(plain), resize, resize, plain.shape[-1])
            plain = jax.image.resize(plain, shape, "bilinear")
        # Merged here and not by `models.apply`, which would ask random networks for a key.
        _, features = nnx.merge(graph, *weights, copy=True)(plain, train=False)
        maps = [name for name, value in features.items() if name.startswith("st")]
        if feature not in maps:
            raise ValueError(f"--feature: expected one of {', '.join(maps)}, got {feature!r}")
        amplitudes = frequency.amplitude(features[feature].astype(jnp.float32))
        return jnp.square(amplitudes).sum((0, 3))

    total = sum(
        np.asarray(power(weights, images[start : start + _BATCH]), np.float64)
        for start in range(0, len(images), _BATCH)
    )
    total = np.asarray(total)
    total[total.shape[0] // 2, total.shape[1] // 2] = 0
    return total / max(total.sum(), np.finfo(np.float64).tiny)


def high_to_low(power: np.ndarray) -> float:
    """Power beyond half of the highest frequency of an axis, over power below it."""
    height, width = power.shape
    rows, columns = np.arange(height) - height // 2, np.arange(width) - width // 2
    high = np.hypot(rows[:, None], columns[None]) >= min(height, width) / 4
    return float(power[high].sum() / max(power[~high].sum(), np.finfo(np.float64).tiny))


def draw_spectra(powers: Mapping[str, np.ndarray], feature: str) -> Figure:
    """One curve for each checkpoint: mean share of power by distance from frequency zero.

    Args:
        powers: [H', W'] by the checkpoint's name, in the order of training; see `feature_power`.
        feature: name of the features, for the title.
    """
    figure = Figure(figsize=(base.COLUMN * 1.25, 2.8), layout="constrained")
    axes = figure.subplots()
    for number, (name, power) in enumerate(powers.items()):
        profile = np.asarray(frequency.radial_profile(jnp.asarray(power, jnp.float32)))
        axes.plot(
            np.arange(1, len(profile)),
            profile[1:],
            ("-", "--", "-.", ":")[number % 4],
            color=base.COLOURS[number % len(base.COLOURS)],
            label=f"{name}: {high_to_low(power):.3f}",
        )
    axes.set_yscale("log")
    axes.set_title(f"spectrum of the features “{feature}”")
    axes.set_xlabel("distance from zero (cycles/image)")
    axes.set_ylabel("share of the power")
    axes.legend(frameon=False, title="weights: high / low power", title_fontsize=7)
    return figure


def weights_over_time(run: Path, config: Config, initial: models.Classifier) -> dict[str, Weights]:
    """The weights that a run folder holds, by name, in the order of training.

    Checkpoints are read without a word to the run, which may be at work.

    Args:
        run: the folder.
        config: of the run.
        initial: the network before training.
    """
    _, params, stats = nnx.split(initial, nnx.Param, nnx.BatchStat)  # type: ignore[misc]
    found = {"initial": (params, stats)}
    averaged = config.ema_decay > 0
    steps = {}
    for kind, prefixes in (
        ("best", ("0", "1")),
        ("latest", ("average/0", "average/1") if averaged else ("params", "stats")),
    ):
        for folder in (run / "checkpoints" / kind).glob("[0-9]*/state"):
            if folder.parent.name.isdigit():  # others are still being written
                steps[int(folder.parent.name)] = (folder, prefixes)
    for step, (folder, prefixes) in sorted(steps.items()):
        found[f"step {step}"] = _read(folder, prefixes, (params, stats))
    return found


def _read(folder: Path, prefixes: tuple[str, str], like: Weights) -> Weights:
    """Parameters and running averages of a checkpoint, see `train.checkpoint`."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with ocp.StandardCheckpointer() as reader:
        stored = reader.metadata(folder.absolute()).item_metadata.tree
        wanted = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=here)
            for name, array in stored.items()
        }
        arrays = reader.restore(folder.absolute(), wanted)

    def named(prefix: str, tree: nnx.State) -> nnx.State:
        def pick(path: tuple, _: jax.Array) -> jax.Array:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            return arrays[f"{prefix}/{name}"]

        return jax.tree_util.tree_map_with_path(pick, tree)

    return named(prefixes[0], like[0]), named(prefixes[1], like[1])


def run(options: Options) -> Path:
    """Rebuilds the network, reads its checkpoints, and draws."""
    base.check_format(options.out)
    path = options.run / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{options.run}: not the folder of a run, it has no config.json")
    config = presets.fill(Config.from_json(path.read_text(encoding="utf-8"), str(path)))
    dataset = open_source(
        config.dataset,
        data_dir=options.data_dir or config.data_dir,
        seed=config.seed,
        limit_train=1,  # not looked at
        limit_test=options.limit,
        image_size=config.image_size,
    )
    model = methods.build(config, 1).wrap(build_model(config, dataset))
    weights = weights_over_time(options.run, config, model)
    if (options.run / run_folder.WEIGHTS).is_file() and len(weights) == 1:
        models.load(model, options.run / run_folder.WEIGHTS, allow_new_head=False)
        _, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)  # type: ignore[misc]
        weights["final"] = (params, stats)
    pixels, _ = base.test_images(dataset, options.limit)
    graph = nnx.graphdef(model)
    powers = {
        name: feature_power(graph, values, pixels, options.feature, resize=config.resize)
        for name, values in weights.items()
    }
    return base.drawn(draw_spectra, options.out, powers, options.feature)
