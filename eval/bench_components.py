"""Connected components: both of our methods, beside SciPy's graph search and its image labelling."""

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

import isvs
from eval import peers
from eval.bench_table import Row
from eval.photographs import photographs
from eval.timing import compile_seconds, in_turn

_LEVEL = 0.6
_MICRO = 1e6
# Scans take a round for every turn of a path; on a larger spiral that would be most of the benchmark's time.
_LARGEST_SPIRAL_FOR_SCANS = 224

_Ties = tuple[np.ndarray, np.ndarray]


def rows(masks: Iterable[tuple[int, int]], rounds: int) -> list[Row]:
    """A row for photographs and one for a spiral for each image side and number of photographs."""
    result = []
    for side, count in masks:
        space = isvs.encode(jnp.asarray(photographs(count, side)))
        down, right = (~np.asarray(mask) for mask in space.support(_LEVEL))
        result.append(_row(f"{count} photographs at {_LEVEL}", (down, right), rounds, scans=True))
        down, right = spiral(side)
        scans = side <= _LARGEST_SPIRAL_FOR_SCANS
        result.append(_row("a spiral", (down[None], right[None]), rounds, scans=scans))
    return result


def spiral(side: int) -> _Ties:
    """One path through all pixels, from the rim inwards: ties bool ``[side-1, side]`` and ``[side, side-1]``."""
    left = np.arange(side * side).reshape(side, side)
    order: list[int] = []
    while left.size:
        order += left[0].tolist()
        left = np.rot90(left[1:])
    place = np.empty(side * side, int)
    place[order] = np.arange(side * side)
    grid = place.reshape(side, side)
    return np.abs(np.diff(grid, axis=0)) == 1, np.abs(np.diff(grid, axis=1)) == 1


def _row(described: str, ties: _Ties, rounds: int, *, scans: bool) -> Row:
    down, right = (jnp.asarray(mask) for mask in ties)
    count, side = len(ties[0]), right.shape[1]
    hook = jax.jit(functools.partial(isvs.connected_components, method="hook"))
    scan = jax.jit(functools.partial(isvs.connected_components, method="scan"))
    compiling = compile_seconds(lambda: hook(down, right))
    tasks = {
        "hook": lambda: hook(down, right),
        "csgraph": lambda: [peers.graph_labels(*one) for one in zip(*ties, strict=True)],
        "ndimage": lambda: [peers.ndimage_labels(*one) for one in zip(*ties, strict=True)],
    }
    seconds = {name: s * (_MICRO / count) for name, s in in_turn(tasks, rounds).items()}
    peer = min(("csgraph", "ndimage"), key=lambda name: seconds[name].value)
    if scans:
        scan_time = in_turn({"scan": lambda: scan(down, right)}, 1)["scan"].value * _MICRO / count
        scanned = f"by scans {scan_time:,.0f} us"
    else:
        scanned = "by scans not run"
    return Row(
        f"components of {described}, {side}x{side}, vs SciPy's {peer}",
        "us/image",
        seconds["hook"],
        seconds[peer],
        note=f"Ours by hooks; {scanned}. csgraph {seconds['csgraph'].value:,.0f} us, ndimage "
        f"{seconds['ndimage'].value:,.0f} us, on one core.",
        compile_seconds=compiling,
    )
