"""The paper's running-time table: many iterations on one grey image, then one projection, done in several ways."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import isvs
from eval import peers
from eval.bench_encode import advance_lbi
from eval.bench_table import Row
from eval.compiled_lbi import CompiledLBI, NoCompilerError, build_loop
from eval.photographs import photographs
from eval.timing import Measured, compile_seconds, in_turn, one_call

_ROUNDS = 3
# The first one bounds the time of the paper's iterations, so that the rest of the others is projection.
_PAPER = {
    "graph": "In the paper 4.87 s on an NVIDIA V100 and a Xeon (15,000 iterations, 84x84).",
    "LSQR": "In the paper 171.79 s: all but 4.87 s are projections, it does not say how many.",
    "SVD": "In the paper 373.24 s: all but 4.87 s are projections, it does not say how many. Measured once, on all "
    "cores; much slower where other work runs beside it.",
}


def rows(side: int, steps: int) -> list[Row]:
    """One row per way to project, and one for the C loop; the paper has side 84 and 15,000 steps."""
    seconds, tied, compiling = _measure(side, steps)
    setting = f"{steps:,} LBI iterations, {side}x{side} grey, one projection"

    def row(iterations: str, projection: str, remark: str) -> Row:
        return Row(
            f"{setting}, vs {iterations} + {projection}",
            "s",
            _sum(seconds["ours"], seconds["our projection"]),
            _sum(seconds[iterations], seconds[projection]),
            note=f"{remark} Iterations {seconds['ours'].value:.3g} s, projection "
            f"{seconds['our projection'].value:.2g} s; the peer's {seconds[iterations].value:.3g} s and "
            f"{seconds[projection].value:.2g} s ({tied:,} tied pairs).",
            compile_seconds=compiling,
        )

    result = [row("NumPy", projection, remark) for projection, remark in _PAPER.items()]
    if "C" in seconds:
        remark = "One image alone; the table's first rows have batches, as training does."
        result.append(row("C", "graph", remark))
    return result


def totals(side: int, steps: int) -> dict[str, Measured]:
    """Seconds of iterations and one projection together, by who does them."""
    seconds, _, _ = _measure(side, steps)
    ways = {"ours": ("ours", "our projection")}
    ways |= {f"NumPy + {projection}": ("NumPy", projection) for projection in _PAPER}
    ways |= {"C + graph": ("C", "graph")} if "C" in seconds else {}
    return {name: _sum(seconds[first], seconds[second]) for name, (first, second) in ways.items()}


def _measure(side: int, steps: int) -> tuple[dict[str, Measured], int, float]:
    """Seconds of every part, the number of tied pairs, and what compiling ours took."""
    image = photographs(1, side, grey=True)[0]
    iterate = jax.jit(functools.partial(_iterate, steps=steps))
    project = jax.jit(_project)
    compiling = compile_seconds(lambda: iterate(image))
    state = iterate(image)
    compiling += compile_seconds(lambda: project(*state))

    in_numpy = peers.NumpyLBI(image[None])
    u, down, right = (np.asarray(a) for a in state)
    tasks: dict[str, Callable[[], Any]] = {
        "ours": lambda: iterate(image),
        "our projection": lambda: project(*state),
        "NumPy": lambda: in_numpy.iterate(steps),
        "graph": lambda: peers.graph_projection(u, down, right),
        "LSQR": lambda: peers.lsqr_projection(u, down, right),
    }
    try:
        compiled = CompiledLBI(image, build_loop(*image.shape))
        tasks["C"] = lambda: compiled.iterate(steps)
    except NoCompilerError:
        pass  # said already, in the row of `encode`
    seconds = in_turn(tasks, _ROUNDS)
    # Once is enough for what takes most of the benchmark's time. Its BLAS threads wait for each other by spinning: on a
    # busy machine it takes several times as long, and this row alone says nothing there.
    seconds["SVD"] = Measured(one_call(lambda: peers.svd_projection(u, down, right)))
    return seconds, int(down.sum() + right.sum()), compiling


def _iterate(image: jax.Array, *, steps: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    u, down, right = advance_lbi(image[None], steps)
    return u[0], down[0], right[0]


def _project(u: jax.Array, down: jax.Array, right: jax.Array) -> jax.Array:
    return isvs.component_means(u, isvs.connected_components(down, right))


def _sum(first: Measured, second: Measured) -> Measured:
    value = first.value + second.value
    return Measured(value, (first.value * first.spread + second.value * second.spread) / value)
