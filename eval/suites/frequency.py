"""`frequency`: the low and the high frequencies of test images alone."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax

from eval import frequency
from eval.suites.base import Judge, Task, image_keys, no_summary, pair, pixels

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Subject

summarise = no_summary
_SUITE = "frequency"

_split = jax.jit(frequency.split, static_argnames="radius")


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """One pass for both parts."""
    high_cells = pair(subject, _SUITE, "high")
    low_cells = pair(subject, _SUITE, "low")

    def measure(batch: "Batch") -> dict[str, jax.Array]:
        keys = image_keys(options.seed, _SUITE, batch["index"])
        low, high = _split(pixels(batch["image"]), radius=options.radius)
        return judge.both(high_cells, keys, high, batch["label"]) | judge.both(
            low_cells, keys, low, batch["label"]
        )

    extra = {"radius": options.radius}
    yield Task((*high_cells, *low_cells), subject.dataset.test, measure, extra=extra)
