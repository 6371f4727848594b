"""`frequency`: the low and the high frequencies of test images alone."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax

from eval import frequency
from eval.suites.base import Cells, Judge, Task, columns, image_keys, no_summary, pixels

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Subject

summarise = no_summary
_SUITE = "frequency"

_split = jax.jit(frequency.split, static_argnames="radius")


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """One pass for both parts."""
    cells = tuple(
        cell for name in ("high", "low") for cell in columns(subject, options, _SUITE, name)
    )

    def measure(batch: "Batch", wanted: Cells) -> dict[str, jax.Array]:
        keys = image_keys(options.seed, _SUITE, batch["index"])
        low, high = _split(pixels(batch["image"]), radius=options.radius)
        right: dict[str, jax.Array] = {}
        for name, part in (("high", high), ("low", low)):
            chosen = [cell for cell in wanted if cell.name == name]
            right |= judge.each(chosen, keys, part, batch["label"])
        return right

    yield Task(cells, subject.dataset.test, measure, extra={"radius": options.radius})
