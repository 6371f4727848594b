"""Timing on a machine that others may be using: tasks in turn, and the median."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Measured:
    """A median, and how far measurements scatter around it.

    Attributes:
      value: the median.
      spread: half the distance of the quartiles, as a fraction of the median.
    """

    value: float
    spread: float = 0.0

    def __mul__(self, factor: float) -> "Measured":
        return Measured(self.value * factor, self.spread)

    def __truediv__(self, divisor: float) -> "Measured":
        return self * (1 / divisor)


def compile_seconds(task: Callable[[], Any]) -> float:
    """What the first call of a jitted function takes more than the second."""
    first, second = one_call(task), one_call(task)
    return max(0.0, first - second)


def one_call(task: Callable[[], Any]) -> float:
    """Seconds of one call, results included."""
    start = time.perf_counter()
    jax.block_until_ready(task())
    return time.perf_counter() - start


def in_turn(tasks: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Measured]:
    """Seconds per call of each task.

    Every round calls every task once, so that what slows the machine for a while slows all of them and the ratio stays.
    One call of each goes before and is not counted.
    """
    for task in tasks.values():
        jax.block_until_ready(task())
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            seconds[name].append(one_call(task))
    return {name: summarise(times) for name, times in seconds.items()}


def summarise(values: list[float]) -> Measured:
    """The median and the spread of some measurements."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return Measured(float(median), float((high - low) / (2 * median)) if median else 0.0)
