"""`runtime`: the paper's run-time table, on this machine. It does not depend on the network."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eval import bench_running_time
from eval.results import Cell, Row
from eval.suites.base import Found, Judge, Task

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Subject

_SUITE = "runtime"
# The paper's: one grey image, so many iterations, one projection.
_SIDE, _STEPS = 84, 15_000


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """None: nothing here goes batch by batch."""
    return ()


def summarise(options: "Options", found: Found) -> Iterable[Row]:
    """Seconds of iterations and projection together."""
    for name, seconds in bench_running_time.totals(_SIDE, _STEPS).items():
        extra = {"spread": seconds.spread, "task": f"{_STEPS} iterations, {_SIDE}x{_SIDE} grey"}
        yield Row(Cell(_SUITE, name), seconds.value, 1, metric="seconds", extra=extra)
