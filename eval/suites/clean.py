"""`clean`: test images under every preprocessing; the paper's smoothing at every level."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax

from eval.preprocessing import PAPER
from eval.results import Cell
from eval.suites.base import Cells, Judge, Task, columns, image_keys, no_summary, pixels

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Subject

summarise = no_summary
_SUITE = _NAME = "clean"


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """One pass: an image's scale space is made once and read at every level."""
    cells = tuple(
        level
        for cell in columns(subject, options, _SUITE, _NAME)
        for level in (_levels(cell, options) if _has_levels(cell) else (cell,))
    )

    encode, at_level = jax.jit(subject.scale_space), jax.jit(subject.defend_at)

    def measure(batch: "Batch", wanted: Cells) -> dict[str, jax.Array]:
        keys = image_keys(options.seed, _SUITE, batch["index"])
        images = pixels(batch["image"])
        levels = [cell for cell in wanted if _has_levels(cell)]
        others = [cell for cell in wanted if cell not in levels]
        right = judge.each(others, keys, images, batch["label"])
        space = encode(images) if levels else None
        for cell in levels:
            right[cell.key] = judge.bare(keys, at_level(space, cell.sparsity), batch["label"])
        return right

    yield Task(cells, subject.dataset.test, measure)


def _has_levels(cell: Cell) -> bool:
    """Whether it is smoothed as in the paper; blur models are blurred, which has no level."""
    return cell.preprocess == PAPER and cell.sparsity is not None


def _levels(cell: Cell, options: "Options") -> Iterable[Cell]:
    wanted = sorted({*options.levels, cell.sparsity or 0.0})
    return [cell._replace(sparsity=level) for level in wanted]
