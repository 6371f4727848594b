"""The benchmark of corruptions: each against its peer on the host, and where the time of a corrupted image goes."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import isvs
from eval import corruption_peers, corruptions
from eval.bench_table import Row
from eval.corruptions.constants import TABLES
from eval.photographs import photographs
from eval.timing import Measured, in_turn, one_call
from train import models

_SIDE = 32
_CONSTANTS = "cifar"
_SEVERITY = 3
_LEVEL = 0.6
_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class _Sizes:
    names: tuple[str, ...]
    batch: int
    peer_images: int  # in a turn
    rounds: int
    model: str


_FULL = _Sizes(corruptions.NAMES, 256, 16, 7, "resnet56")
_QUICK = _Sizes(("gaussian_noise", "gaussian_blur", "contrast"), 16, 4, 2, "resnet8")


def run(quick: bool) -> list[Row]:
    """All rows of the table; some minutes on two cores, most of them for compiling."""
    sizes = _QUICK if quick else _FULL
    images = np.round(255 * photographs(sizes.batch, _SIDE)).astype(np.uint8)
    return [
        *(_corruption_row(name, images, sizes) for name in sizes.names),
        *_share_rows(images, sizes),
    ]


def _corrupt(name: str, images: np.ndarray) -> Callable[[], jax.Array]:
    """A task: our corruption of a batch that is on the device already."""
    keys = jax.random.split(jax.random.key(0), len(images))
    device_images = jnp.asarray(images / 255, jnp.float32)
    return functools.partial(
        corruptions.corrupt,
        keys,
        device_images,
        name=name,
        severity=_SEVERITY,
        constants=_CONSTANTS,
    )


def _corruption_row(name: str, images: np.ndarray, sizes: _Sizes) -> Row:
    constants = TABLES[_CONSTANTS][name][_SEVERITY - 1]
    rng = np.random.default_rng(0)
    few = images[: sizes.peer_images]

    def peer() -> list[np.ndarray]:
        return [corruption_peers.corrupt(rng, image, name, constants) for image in few]

    ours = _corrupt(name, images)
    first = one_call(ours)
    tasks: dict[str, Callable[[], Any]] = {"ours": ours}
    if name in corruption_peers.PEERS:
        tasks["peer"] = peer
    seconds = in_turn(tasks, sizes.rounds)
    return Row(
        f"{name}, severity {_SEVERITY}",
        "images/s",
        _rate(seconds["ours"], len(images)),
        _rate(seconds["peer"], len(few)) if "peer" in seconds else None,
        note=_note(name, sizes.batch),
        compile_seconds=max(0.0, first - seconds["ours"].value),
    )


def _rate(seconds: Measured, count: int) -> Measured:
    return Measured(count / seconds.value, seconds.spread)


def _note(name: str, batch: int) -> str:
    if name not in corruption_peers.PEERS:
        peer = "no peer, as the published generator needs OpenCV"
    else:
        peer = "peer: NumPy, SciPy or Pillow, image by image; a ratio above one is faster"
    return f"Batch {batch} of {_SIDE}x{_SIDE}; {peer}."


def _share_rows(images: np.ndarray, sizes: _Sizes) -> list[Row]:
    """Corrupting, smoothing and classifying the same batch, each in milliseconds an image."""
    noisy = _corrupt("gaussian_noise", images)()
    smooth = jax.jit(functools.partial(isvs.smooth, sparsity=_LEVEL))
    tasks: dict[str, Callable[[], Any]] = {
        "corrupting, gaussian_noise": _corrupt("gaussian_noise", images),
        f"smoothing to {_LEVEL}": functools.partial(smooth, noisy),
        f"forward pass of {sizes.model}": functools.partial(_classifier(sizes.model), noisy),
    }
    seconds = in_turn(tasks, sizes.rounds)
    total = sum(measured.value for measured in seconds.values())
    return [
        Row(
            f"one noisy image: {name}",
            "ms",
            measured * (1000 / len(images)),
            note=f"{100 * measured.value / total:.0f} % of the three; batch {len(images)} of {_SIDE}x{_SIDE}.",
        )
        for name, measured in seconds.items()
    ]


def _classifier(name: str) -> Callable[[jax.Array], jax.Array]:
    """Logits by random weights: the time does not depend on them."""

    def make() -> models.Classifier:
        return models.build(name, num_classes=_CLASSES, image_size=_SIDE, rngs=nnx.Rngs(0))

    # All weights in one compilation; one for each shape takes several times as long.
    graph = nnx.graphdef(nnx.eval_shape(make))
    model = nnx.merge(graph, jax.jit(lambda: nnx.state(make()))())
    graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)  # type: ignore[misc]

    @jax.jit
    def logits(params: nnx.State, stats: nnx.State, images: jax.Array) -> jax.Array:
        return models.apply(graph, params, stats, images, train=False)[0]

    return functools.partial(logits, params, stats)
