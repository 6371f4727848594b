"""The benchmark of methods: what a training step of each costs, relative to the plain one."""

import dataclasses
import functools
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from eval.bench_table import Row
from eval.photographs import photographs
from eval.timing import in_turn
from train import presets
from train.config import Config
from train.data.dataset import ArraySplit, Dataset
from train.setup import Parts, assemble
from train.sharding import Layout

_BASE = "vanilla"
_ADVERSARIAL = {"method": "adversarial"}
_SMOOTHED = {**_ADVERSARIAL, "view": "fix"}
_VARIANTS: dict[str, dict[str, Any]] = {
    _BASE: {"method": _BASE},
    "blur": {"method": "blur"},
    "fix": {"method": "fix"},
    "iterative": {"method": "iterative"},
    "noise": {"method": "noise"},
    "sat, clean": {"method": "sat", "trades_beta": 0.0},
    "tv_layer, tv": {"method": "tv_layer"},
    "tv_layer, isvs": {"method": "tv_layer", "layer": "isvs"},
    "augmix": {"method": "augmix"},
    "adversarial": _ADVERSARIAL,
    "adversarial, TRADES": {**_ADVERSARIAL, "trades_beta": 6.0},
    "awp": {"method": "awp"},
    "pni": {"method": "pni"},
    "sat, TRADES": {"method": "sat"},
    "adversarial on smoothed images": _SMOOTHED,
    "adversarial through the smoothing": {**_SMOOTHED, "attack_through": "smoothing"},
}
# Each takes seconds to compile; one shows that the benchmark runs.
_QUICK_VARIANTS = (_BASE, "noise")


@dataclasses.dataclass(frozen=True)
class _Sizes:
    model: str
    side: int
    batch: int
    rounds: int
    variants: tuple[str, ...]


_FULL = _Sizes("resnet8", 32, 64, 3, tuple(_VARIANTS))
_QUICK = _Sizes("_tiny", 8, 16, 1, _QUICK_VARIANTS)


def run(quick: bool) -> list[Row]:
    """A row for every method but the base; minutes on two cores, as most have to be compiled with their attacks."""
    sizes = _QUICK if quick else _FULL
    with tempfile.TemporaryDirectory() as folder:
        variants = {name: _Variant(_parts(name, sizes, Path(folder))) for name in sizes.variants}
    tasks = {name: variant.step for name, variant in variants.items()}
    milliseconds = {name: value * 1000 for name, value in in_turn(tasks, sizes.rounds).items()}
    note = (
        f"{sizes.model}, batch {sizes.batch}, {sizes.side}x{sizes.side}, each method as its recipe has it; "
        "peer: the vanilla step."
    )
    return [
        Row(f"training step, {name}", "ms", milliseconds[name], milliseconds[_BASE], note=note)
        for name in sizes.variants
        if name != _BASE
    ]


def _parts(name: str, sizes: _Sizes, cache: Path) -> Parts:
    config = Config(
        dataset="cifar10",
        model=sizes.model,
        batch_size=sizes.batch,
        eval_batch_size=sizes.batch,
        cache_dir=cache,
        **_VARIANTS[name],
    )
    return assemble(presets.fill(config), _dataset(sizes.side, sizes.batch), Layout())


@functools.cache
def _dataset(side: int, count: int) -> Dataset:
    """Crops of photographs, in the place of CIFAR's; one batch of them."""
    images = np.round(255 * photographs(count, side)).astype(np.uint8)
    labels = np.arange(count, dtype=np.int32) % 10
    return Dataset(
        name="photographs",
        image_shape=(side, side, 3),
        class_names=tuple(map(str, range(10))),
        train=ArraySplit(images, labels),
        test=ArraySplit(images[:8], labels[:8]),
    )


class _Variant:
    """A training run that can be taken a step further, always with the same batch."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._state = parts, parts.initial
        self._batch = next(iter(parts.feed.train_batches(0)))

    def step(self) -> dict[str, jax.Array]:
        """One step; the first one compiles."""
        self._state, metrics = self._parts.update(self._state, self._parts.feed.train, self._batch)
        return metrics
