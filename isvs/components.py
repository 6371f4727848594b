"""Connected components of a grid whose links are masks, by min-label propagation to a fixpoint."""

import functools
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from isvs import _checks

Method = Literal["hook", "scan"]


def connected_components(
    down: jax.Array, right: jax.Array, *, method: Method | None = None
) -> jax.Array:
    """Labels the connected components of pixels under the given ties.

    Every pixel starts with its own flat index as its label; labels then fall to the smallest index that can be reached
    through ties, until nothing changes. Two ways to get there in few rounds:

    - ``"hook"``: a pixel's root takes the smallest label seen next to the pixel (scatter-min), and pointers are halved
      (FastSV). Rounds grow with the logarithm of the longest path, whatever its shape. Gathers and scatters.
    - ``"scan"``: running minima along whole runs of tied pixels, row-wise and column-wise in turn. Rounds grow with the
      number of turns of a path; no gather and no scatter.

    Args:
      down: bool ``[..., H-1, W]``; True ties pixel ``(i, j)`` to ``(i + 1, j)``.
      right: bool ``[..., H, W-1]``; True ties pixel ``(i, j)`` to ``(i, j + 1)``.
      method: ``"hook"``, ``"scan"``, or None for the default of the platform that the program is compiled for:
        ``"scan"`` on TPU, where gathers are slow, ``"hook"`` on CPU and GPU.

    Returns:
      int32 ``[..., H, W]``: the smallest flat index ``i * W + j`` in the pixel's component.

    Example:
      >>> import jax.numpy as jnp
      >>> connected_components(jnp.zeros((0, 3), bool), jnp.array([[True, False]]))
      Array([[0, 0, 2]], dtype=int32)

    Reference: Zhang, Azad, Hu, "FastSV: a distributed-memory connected component algorithm with
    fast convergence", 2020.
    """
    down, right = jnp.asarray(down), jnp.asarray(right)
    *batch, height, width = _checks.links_shape(down, right)
    if method is not None:
        _checks.choice("method", method, _METHODS)
    flat_down = down.reshape(math.prod(batch), height - 1, width)
    flat_right = right.reshape(math.prod(batch), height, width - 1)
    labels, _ = propagate(flat_down, flat_right, method=method)
    return labels.reshape(*batch, height, width)


@functools.partial(jax.jit, static_argnames="method")
def propagate(
    down: jax.Array, right: jax.Array, *, method: Method | None
) -> tuple[jax.Array, jax.Array]:
    """Labels ``[B, H, W]`` of checked links ``[B, H-1, W]``, ``[B, H, W-1]``, and the number of rounds it took."""
    if method is None:
        return jax.lax.platform_dependent(down, right, tpu=_by_scans, default=_by_hooks)
    return _METHODS[method](down, right)


def _fixpoint(
    sweep: Callable[[jax.Array], jax.Array], labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Applies `sweep` until labels stay; also counts the rounds."""

    def unfinished(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return carry[2]

    def advance(
        carry: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        labels, rounds, _ = carry
        lower = sweep(labels)
        return lower, rounds + 1, jnp.any(lower != labels)

    # The flag is made from the labels so that it varies over the same mesh axes (shard_map checks that).
    start = (labels, jnp.zeros_like(labels, shape=()), jnp.any(labels >= 0))
    labels, rounds, _ = jax.lax.while_loop(unfinished, advance, start)
    return labels, rounds


def _by_hooks(down: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    batch, height, width = down.shape[0], right.shape[1], down.shape[2]
    own = _own_index(down, right)
    tied = (_shift(down, 1, 1), _shift(down, 1, 0), _shift(right, 2, 1), _shift(right, 2, 0))

    def look_up(parents: jax.Array, at: jax.Array) -> jax.Array:
        return jnp.take_along_axis(parents, at, axis=1, mode="promise_in_bounds")

    def smallest_neighbour(labels: jax.Array) -> jax.Array:  # [B, H*W] to [B, H*W]
        grid = labels.reshape(batch, height, width)
        above, below = _roll(grid, 1, 1), _roll(grid, 1, -1)
        before, after = _roll(grid, 2, 1), _roll(grid, 2, -1)
        lowest = grid
        for mask, other in zip(tied, (above, below, before, after), strict=True):
            lowest = jnp.where(mask, jnp.minimum(lowest, other), lowest)
        return lowest.reshape(batch, height * width)

    hook = jax.vmap(lambda parents, at, label: parents.at[at].min(label, mode="promise_in_bounds"))

    def sweep(parents: jax.Array) -> jax.Array:
        grandparents = look_up(parents, parents)
        nearby = smallest_neighbour(grandparents)
        parents = hook(parents, parents, nearby)
        parents = jnp.minimum(parents, nearby)
        return look_up(parents, parents)

    labels, rounds = _fixpoint(sweep, own.reshape(batch, height * width))
    return labels.reshape(batch, height, width), rounds


def _by_scans(down: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    own = _own_index(down, right)
    starts = (_runs_start(down, 1), _runs_start(right, 2))
    ends = (_runs_end(down, 1), _runs_end(right, 2))

    def sweep(labels: jax.Array) -> jax.Array:
        for axis, start, end in zip((1, 2), starts, ends, strict=True):
            forward = _running_minimum(labels, start, axis, reverse=False)
            labels = _running_minimum(forward, end, axis, reverse=True)
        return labels

    return _fixpoint(sweep, own)


def _running_minimum(
    labels: jax.Array, boundary: jax.Array, axis: int, *, reverse: bool
) -> jax.Array:
    """The minimum since the last boundary, along an axis: a segmented associative scan."""

    def combine(
        left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        (low_left, cut_left), (low_right, cut_right) = left, right
        low = jnp.where(cut_right, low_right, jnp.minimum(low_left, low_right))
        return low, cut_left | cut_right

    scanned: tuple[jax.Array, jax.Array] = jax.lax.associative_scan(
        combine, (labels, boundary), axis=axis, reverse=reverse
    )
    return scanned[0]


def _own_index(down: jax.Array, right: jax.Array) -> jax.Array:
    """Each pixel's flat index, ``[B, H, W]``; built from the input so that it varies over the same mesh axes."""
    batch, height, width = down.shape[0], right.shape[1], down.shape[2]
    nothing = jnp.zeros_like(right if height == 1 else down, dtype=jnp.int32, shape=(batch, 1, 1))
    return nothing + jnp.arange(height * width, dtype=jnp.int32).reshape(1, height, width)


def _shift(mask: jax.Array, axis: int, before: int) -> jax.Array:
    """Pads an edge mask to pixels: the tie to the pixel before (1) or after (0) along the axis."""
    widths = [(0, 0)] * mask.ndim
    widths[axis] = (before, 1 - before)
    return jnp.pad(mask, widths)


def _runs_start(mask: jax.Array, axis: int) -> jax.Array:
    return ~_shift(mask, axis, 1)


def _runs_end(mask: jax.Array, axis: int) -> jax.Array:
    return ~_shift(mask, axis, 0)


def _roll(grid: jax.Array, axis: int, by: int) -> jax.Array:
    """The neighbour's value along an axis; what wraps around is never tied."""
    return jnp.roll(grid, by, axis)


_METHODS: dict[str, Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]] = {
    "hook": _by_hooks,
    "scan": _by_scans,
}
