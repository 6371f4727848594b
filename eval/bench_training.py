"""The benchmark of training: what smoothing costs inside the update, the loop around it, and the memory it takes."""

import collections
import dataclasses
import functools
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from eval.bench_table import Row, at_most
from eval.photographs import photographs
from eval.timing import Measured, in_turn
from train import methods, presets
from train.codes import CodeTable, open_codes
from train.config import Config
from train.data.dataset import ArraySplit, Dataset
from train.setup import Parts, assemble
from train.sharding import Layout

_SIDE = 32
_CIFAR_IMAGES = 50_000
_TARGET = at_most(1.05)
_BASE = "vanilla"
_VARIANTS: dict[str, dict[str, Any]] = {
    _BASE: {"method": "vanilla"},
    "fix": {"method": "fix"},
    "iterative path": {"method": "iterative"},
    "iterative lbi": {"method": "iterative", "iterate": "lbi"},
}
_WITH_DATA = "loop with data"
_FETCHED_LATER = 2  # steps, as in the loop


@dataclasses.dataclass(frozen=True)
class _Sizes:
    model: str
    batch: int
    rounds: int
    steps: int  # in a turn
    train_images: int
    encoded_images: int


_FULL = _Sizes("resnet20", 128, 15, 3, 2048, _CIFAR_IMAGES)
_QUICK = _Sizes("_tiny", 32, 2, 2, 128, 256)


def run(quick: bool) -> list[Row]:
    """All rows of the table; ten minutes on two cores, of which encoding takes the half."""
    sizes = _QUICK if quick else _FULL
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        encoding, table = _encoding_row(sizes.encoded_images, cache)
        return [
            *_step_rows(sizes, cache),
            encoding,
            *_memory_rows(table),
        ]


def _dataset(train_images: int) -> Dataset:
    """Crops of photographs, in the place of CIFAR's."""
    few = photographs(min(train_images, 4096), _SIDE)
    images = np.resize(np.uint8(np.round(255 * few)), (train_images, _SIDE, _SIDE, 3))
    labels = np.arange(train_images, dtype=np.int32) % 10
    return Dataset(
        name="photographs",
        image_shape=(_SIDE, _SIDE, 3),
        class_names=tuple(map(str, range(10))),
        train=ArraySplit(images, labels),
        test=ArraySplit(images[:8], labels[:8]),
    )


def _step_rows(sizes: _Sizes, cache: Path) -> list[Row]:
    dataset = _dataset(sizes.train_images)
    configs = {
        # CIFAR's recipe: 200 epochs, and hence its share of steps for `lbi`.
        name: presets.fill(
            Config(
                dataset="cifar10",
                model=sizes.model,
                batch_size=sizes.batch,
                eval_batch_size=sizes.batch,
                cache_dir=cache,
                **options,
            )
        )
        for name, options in _VARIANTS.items()
    }
    variants = {
        name: _Variant(assemble(config, dataset, Layout())) for name, config in configs.items()
    }
    tasks = {
        name: functools.partial(variant.repeat, sizes.steps) for name, variant in variants.items()
    }
    tasks[_WITH_DATA] = functools.partial(variants[_BASE].with_data, sizes.steps)
    seconds = in_turn(tasks, sizes.rounds)
    milliseconds = {name: value * (1000 / sizes.steps) for name, value in seconds.items()}
    setting = f"{sizes.model}, batch {sizes.batch}, {_SIDE}x{_SIDE}; peer: the bare vanilla step."
    lbi = f" {configs['iterative lbi'].lbi_steps} steps of the iteration at each visit."
    return [
        Row(
            f"training step, {name}",
            "ms",
            milliseconds[name],
            milliseconds[_BASE],
            target=None if name == "iterative lbi" else _TARGET,
            note=setting + (lbi if name == "iterative lbi" else ""),
        )
        for name in ("fix", "iterative path", "iterative lbi", _WITH_DATA)
    ]


class _Variant:
    """A training run that can be taken some steps further."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._state = parts, parts.initial
        self._batches = parts.feed.train_batches(0)
        self._batch = next(self._batches)
        self.repeat(2)  # compiles; and for `lbi` makes the first visit to the batch

    def repeat(self, steps: int) -> Any:
        """Bare steps: one batch that is on the device already."""
        for _ in range(steps):
            self._state, metrics = self._parts.update(
                self._state, self._parts.feed.train, self._batch
            )
        return metrics

    def with_data(self, steps: int) -> None:
        """Steps as the loop takes them: new batches, and numbers fetched a little later."""
        pending: collections.deque[dict[str, jax.Array]] = collections.deque()
        for _ in range(steps):
            self._state, metrics = self._parts.update(
                self._state, self._parts.feed.train, next(self._batches)
            )
            pending.append(metrics)
            if len(pending) > _FETCHED_LATER:
                jax.tree.map(float, pending.popleft())
        for metrics in pending:
            jax.tree.map(float, metrics)


def _encoding_row(count: int, cache: Path) -> tuple[Row, CodeTable]:
    dataset = _dataset(count)
    assert isinstance(dataset.train, ArraySplit)
    # First other data, in pieces of the same shape, so that compiling does not count.
    images = dataset.train.images[: min(count, 512)]
    warm = ArraySplit(255 - images, dataset.train.labels[: len(images)])
    for split in (warm, dataset.train):
        began = time.perf_counter()
        table = open_codes(
            split, dataset.image_shape, label="photographs", cache_dir=cache, silent=True
        )
        seconds = time.perf_counter() - began
    row = Row(
        f"encoding {count} training images, with writing",
        "images/s",
        Measured(count / seconds),
        note=f"{count} images of {_SIDE}x{_SIDE} in {seconds:.1f} s, once for all trainings.",
    )
    return row, table


def _memory_rows(table: CodeTable) -> list[Row]:
    shape = (_SIDE, _SIDE, 3)
    codes = sum(array.nbytes for array in table.arrays().values()) / len(table)
    config = presets.fill(Config(dataset="cifar10", iterate="lbi"))
    method = methods.build(config, steps_per_epoch=1)
    state = jax.eval_shape(lambda: method.init(methods.Spec(_CIFAR_IMAGES, 10, shape)))
    lbi = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else 1024 * peak  # Linux counts in kilobytes
    of = f"on the device, {_CIFAR_IMAGES} images of {_SIDE}x{_SIDE}x3"
    return [
        Row(f"codes {of}", "MB", Measured(codes * _CIFAR_IMAGES / 1e6)),
        Row(f"images as bytes {of}", "MB", Measured(np.prod(shape) * _CIFAR_IMAGES / 1e6)),
        Row(f"state of iterative lbi {of}", "MB", Measured(lbi / 1e6)),
        Row("resident memory of this benchmark, at most", "MB", Measured(peak_bytes / 1e6)),
    ]
