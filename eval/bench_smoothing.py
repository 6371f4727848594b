"""The benchmark of the library `isvs`: speed, growth and memory, each beside a peer where there is one."""

import functools
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

import isvs
from eval import (
    bench_cleaning,
    bench_components,
    bench_denoisers,
    bench_encode,
    bench_memory,
    bench_running_time,
)
from eval.bench_sizes import FULL, QUICK
from eval.bench_table import Row, at_most
from eval.photographs import photographs
from eval.timing import compile_seconds, in_turn

_SIDE = 32
_NANO = 1e9


def run(quick: bool) -> list[Row]:
    """All rows of the table; a few minutes on two cores, half a minute if quick."""
    sizes = QUICK if quick else FULL
    images = photographs(sizes.images, _SIDE)
    parts: dict[str, Callable[[], list[Row]]] = {
        "encode, at, LBI step": lambda: bench_encode.rows(images, sizes),
        "cleaning": lambda: bench_cleaning.rows(images, sizes.rounds),
        "growth": lambda: _growth_rows(sizes.growth, sizes.rounds),
        "memory": lambda: bench_memory.rows(sizes.memory_images, _SIDE),
        "the paper's running times": lambda: bench_running_time.rows(
            sizes.table_side, sizes.table_steps
        ),
        "denoisers": lambda: bench_denoisers.rows(images, sizes.rounds, sizes.numpy_images),
        "components": lambda: bench_components.rows(sizes.masks, sizes.rounds),
    }
    rows = []
    for name, part in parts.items():
        start = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += part()
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return rows


def _growth_rows(batches: tuple[tuple[int, int], ...], rounds: int) -> list[Row]:
    """The time of `encode` per pixel at each image side, against the first one."""
    encode = jax.jit(isvs.encode)
    tasks, compiling = {}, {}
    for side, count in batches:
        images = jnp.asarray(photographs(count, side))
        tasks[str(side)] = functools.partial(encode, images)
        compiling[side] = compile_seconds(tasks[str(side)])
    seconds = in_turn(tasks, rounds)
    per_pixel = {
        side: seconds[str(side)] * (_NANO / (count * side * side)) for side, count in batches
    }
    described = ", ".join(f"{count} of {side}x{side}" for side, count in batches)
    base, *others = per_pixel
    return [
        Row(
            f"encode at {side}x{side} vs encode at {base}x{base}",
            "ns/pixel",
            per_pixel[side],
            per_pixel[base],
            at_most(1.3),
            f"Images in a batch: {described}.",
            compiling[side],
        )
        for side in others
    ]
