"""`encode`, `at` and the LBI step on small colour images, beside NumPy, SciPy and a compiled C loop."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isvs
from eval import peers
from eval.bench_sizes import Sizes
from eval.bench_table import Row, Target, at_least, at_most
from eval.compiled_lbi import CompiledLBI, Loop, NoCompilerError, build_loop
from eval.timing import Measured, compile_seconds, in_turn
from isvs import lbi

LEVEL = 0.6
_MICRO = 1e6


@dataclasses.dataclass(frozen=True)
class _Path:
    """What the iteration does with some of the images: how long to the level, and which pixels are tied there."""

    iterations: float
    described: str
    down: np.ndarray
    right: np.ndarray


def rows(images: np.ndarray, sizes: Sizes) -> list[Row]:
    """The rows for images ``[B, H, W, C]``."""
    path = _follow_path(images[: sizes.path_images])
    loop, reason = _try_to_build_loop(images.shape[1:])
    tasks: dict[str, Callable[[], Any]] = {}

    batch = jnp.asarray(images)
    encode, at = jax.jit(isvs.encode), jax.jit(isvs.ScaleSpace.at)
    tasks["encode"] = lambda: encode(batch)
    compiling_encode = compile_seconds(tasks["encode"])
    space = encode(batch)
    tasks["at"] = lambda: at(space, LEVEL)
    compiling_at = compile_seconds(tasks["at"])

    few = images[: sizes.numpy_images]
    as_they_come, batch_last = peers.NumpyLBI(few, batch_last=False), peers.NumpyLBI(few)
    tasks["[B, H, W, C]"] = lambda: as_they_come.iterate(sizes.numpy_steps)
    tasks["[C, H, W, B]"] = lambda: batch_last.iterate(sizes.numpy_steps)
    projected = list(zip(images, path.down, path.right, strict=False))
    tasks["projection"] = lambda: [peers.graph_projection(*arguments) for arguments in projected]
    if loop is not None:
        image = CompiledLBI(images[0], loop)
        tasks["C"] = lambda: image.iterate(sizes.compiled_steps)

    seconds = in_turn(tasks, sizes.rounds)
    per_image = seconds["encode"] * (_MICRO / len(images))
    projection = seconds["projection"] * (_MICRO / len(projected))

    def against_numpy(order: str, target: Target | None, remark: str) -> Row:
        one = seconds[order] * (_MICRO / (sizes.numpy_steps * len(few)))
        return Row(
            f"encode vs NumPy LBI {order} to {LEVEL} + SciPy projection",
            "us/image",
            per_image,
            Measured(one.value * path.iterations + projection.value, one.spread),
            target,
            f"{remark} {one.value:.1f} us an image and iteration (batches of {len(few)}, "
            f"{sizes.numpy_steps * sizes.rounds} iterations measured), times {path.described}; plus "
            f"{projection.value:.0f} us for one projection.",
            compiling_encode,
        )

    return [
        against_numpy("[B, H, W, C]", at_most(1 / 100), "Arrays as images come."),
        against_numpy("[C, H, W, B]", None, "Arrays in the order that is fastest for NumPy."),
        _against_loop(per_image, seconds.get("C"), sizes.compiled_steps, path, loop, reason),
        Row(
            f"at({LEVEL})",
            "images/s",
            Measured(len(images) / seconds["at"].value, seconds["at"].spread),
            target=at_least(10_000),
            note=f"In batches of {len(images)}; SciPy's graph search and means: "
            f"{_MICRO / projection.value:,.0f} images/s on one core.",
            compile_seconds=compiling_at,
        ),
        _step_row(images, sizes, loop, reason),
    ]


def _follow_path(images: np.ndarray) -> _Path:
    path = isvs.lbi_path(images, [LEVEL])
    reached = np.asarray(path.reached[0])
    counts = np.asarray(path.steps[0])[reached]
    described = (
        f"{counts.mean():,.0f} iterations (mean of the {reached.sum()} of {reached.size} images that reach {LEVEL}; "
        f"median {np.median(counts):,.0f}, {counts.min():,} to {counts.max():,})"
    )
    down, right = ~np.asarray(path.down[0]), ~np.asarray(path.right[0])
    return _Path(float(counts.mean()), described, down, right)


def _try_to_build_loop(shape: tuple[int, ...]) -> tuple[Loop | None, str]:
    """The C loop, or why there is none."""
    height, width, channels = shape
    try:
        return build_loop(height, width, channels), ""
    except NoCompilerError as error:
        return None, f"Skipped the C loop: {error}."


def _against_loop(
    ours: Measured, run: Measured | None, steps: int, path: _Path, loop: Loop | None, reason: str
) -> Row:
    what = f"encode vs compiled C loop to {LEVEL}"
    if run is None or loop is None:
        return Row(what, "us/image", ours, note=reason)
    one = run * (_MICRO / steps)
    note = (
        f"{loop.command}, one core, ours on all: {one.value:.2f} us an iteration, times {path.described}; its test "
        "for the level and its projection are not counted. The goal is 1/3."
    )
    return Row(what, "us/image", ours, one * path.iterations, at_most(1 / 2), note)


def _step_row(images: np.ndarray, sizes: Sizes, loop: Loop | None, reason: str) -> Row:
    """Our LBI step in its best batch against an iteration of the C loop."""
    advance = jax.jit(functools.partial(advance_lbi, steps=sizes.steps))
    batches = {size: jnp.asarray(images[:size]) for size in sizes.step_batches}
    tasks: dict[str, Callable[[], Any]] = {
        str(size): functools.partial(advance, batch) for size, batch in batches.items()
    }
    compiling = sum(compile_seconds(task) for task in tasks.values())
    if loop is not None:
        image = CompiledLBI(images[0], loop)
        tasks["C"] = lambda: image.iterate(sizes.compiled_steps)
    seconds = in_turn(tasks, sizes.rounds)
    ours = {size: seconds[str(size)] * (_MICRO / (sizes.steps * size)) for size in batches}
    best = min(ours, key=lambda size: ours[size].value)
    others = ", ".join(f"{size}: {measured.value:.2f}" for size, measured in ours.items())
    note = f"In batches of {best}, the best of us an image by batch: {others}."
    what = "LBI step vs an iteration of the C loop"
    if loop is None:
        return Row(what, "us/image", ours[best], note=f"{note} {reason}")
    one = seconds["C"] * (_MICRO / sizes.compiled_steps)
    return Row(what, "us/image", ours[best], one, at_most(1.5), note, compiling)


def advance_lbi(images: jax.Array, steps: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Our iteration from the start, on ``[B, H, W, C]``; the one place that knows the solver's order of axes.

    Returns:
      `u` as ``[B, H, W, C]``, and which pixels are tied: bool ``[B, H-1, W]`` and ``[B, H, W-1]``.
    """
    planes = images.transpose(0, 3, 1, 2)
    state = lbi.advance(jax.vmap(lbi.init)(planes), planes, steps, isvs.LBI())
    down, right = (jnp.sum(z**2, axis=1) <= 1 for z in (state.down, state.right))
    return state.u.transpose(0, 2, 3, 1), down, right
