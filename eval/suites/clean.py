"""`clean`: test images as they are, and smoothed at every level."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax

import isvs
from eval.results import Cell
from eval.suites.base import Judge, Task, image_keys, no_summary, pixels

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Subject

summarise = no_summary
_SUITE = _NAME = "clean"

_at = jax.jit(isvs.ScaleSpace.at)
_encode = jax.jit(isvs.encode)


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """One pass: an image's scale space is made once and read at every level."""
    bare = Cell(_SUITE, _NAME, smoothed=False)
    if subject.sparsity is None:
        levels: tuple[Cell, ...] = (bare._replace(smoothed=True),)
    else:
        wanted = sorted({*options.levels, subject.sparsity})
        levels = tuple(bare._replace(smoothed=True, sparsity=level) for level in wanted)

    def measure(batch: "Batch") -> dict[str, jax.Array]:
        keys = image_keys(options.seed, _SUITE, batch["index"])
        images = pixels(batch["image"])
        right = {bare.key: judge.bare(keys, images, batch["label"])}
        if subject.sparsity is None:
            return right | {levels[0].key: judge.defended(keys, images, batch["label"])}
        space = _encode(images)
        for cell in levels:
            right[cell.key] = judge.bare(keys, _at(space, cell.sparsity), batch["label"])
        return right

    yield Task((bare, *levels), subject.dataset.test, measure)
