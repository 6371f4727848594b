"""Connected components of a grid whose links are masks, by min-label propagation to a fixpoint."""

import functools
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise

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
    shape = _checks.links_shape(down, right)
    if method is not None:
        _checks.choice("method", method, _METHODS)

    def label(down: jax.Array, right: jax.Array) -> jax.Array:
        *batch, height, width = shape
        flat_down = down.reshape(math.prod(batch), height - 1, width)
        flat_right = right.reshape(math.prod(batch), height, width - 1)
        return propagate(flat_down, flat_right, method=method)[0].reshape(shape)

    return batchwise(label, down, right, trailing=2, results=[2])


@functools.partial(jax.jit, static_argnames="method")
def propagate(
    down: jax.Array, right: jax.Array, *, method: Method | None
) -> tuple[jax.Array, jax.Array]:
    """Labels ``[B, H, W]`` of checked links ``[B, H-1, W]``, ``[B, H, W-1]``, and the number of rounds it took."""
    if method is None:
        return jax.lax.platform_dependent(down, right, tpu=_by_scans, default=_by_hooks)
    return _METHODS[method](down, right)


def _by_hooks(down: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    own = _own_index(down, right)
    batch, height, width = own.shape

    def smallest_nearby(labels: jax.Array) -> jax.Array:
        return _smallest_tied(labels.reshape(own.shape), down, right).reshape(labels.shape)

    hook = jax.vmap(lambda parents, at, label: parents.at[at].min(label, mode="promise_in_bounds"))

    def advance(parents: jax.Array, nearby: jax.Array) -> jax.Array:
        parents = jnp.minimum(hook(parents, parents, nearby), nearby)
        return jnp.take_along_axis(parents, parents, axis=1, mode="promise_in_bounds")

    labels, rounds = _fixpoint(advance, smallest_nearby, own.reshape(batch, height * width))
    return labels.reshape(own.shape), rounds


def _by_scans(down: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    def advance(_: jax.Array, nearby: jax.Array) -> jax.Array:
        for axis, links in ((1, down), (2, right)):
            forward = _running_minimum(nearby, _cut(links, axis, before=True), axis, reverse=False)
            nearby = _running_minimum(forward, _cut(links, axis, before=False), axis, reverse=True)
        return nearby

    def smallest_nearby(labels: jax.Array) -> jax.Array:
        return _smallest_tied(labels, down, right)

    return _fixpoint(advance, smallest_nearby, _own_index(down, right))


def _fixpoint(
    advance: Callable[[jax.Array, jax.Array], jax.Array],
    smallest_nearby: Callable[[jax.Array], jax.Array],
    labels: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Lowers labels until tied pixels agree, and counts the rounds.

    Labels only fall, and always to an index of the same component; so where tied pixels agree, they agree on the
    smallest.
    """
    Carry = tuple[jax.Array, jax.Array, jax.Array]

    def unfinished(carry: Carry) -> jax.Array:
        labels, nearby, _ = carry
        return jnp.any(nearby != labels)

    def one_round(carry: Carry) -> Carry:
        labels, nearby, rounds = carry
        labels = advance(labels, nearby)
        return labels, smallest_nearby(labels), rounds + 1

    start = (labels, smallest_nearby(labels), jnp.zeros_like(labels, shape=()))
    labels, _, rounds = jax.lax.while_loop(unfinished, one_round, start)
    return labels, rounds


def _smallest_tied(labels: jax.Array, down: jax.Array, right: jax.Array) -> jax.Array:
    """The smallest label among a pixel and those it is tied to: ``[B, H, W]``."""
    none = jnp.iinfo(labels.dtype).max
    rows = jnp.where(down, jnp.minimum(labels[:, 1:], labels[:, :-1]), none)
    columns = jnp.where(right, jnp.minimum(labels[:, :, 1:], labels[:, :, :-1]), none)
    rows = jnp.pad(rows, ((0, 0), (1, 1), (0, 0)), constant_values=none)
    columns = jnp.pad(columns, ((0, 0), (0, 0), (1, 1)), constant_values=none)
    vertical = jnp.minimum(rows[:, :-1], rows[:, 1:])
    horizontal = jnp.minimum(columns[:, :, :-1], columns[:, :, 1:])
    return jnp.minimum(labels, jnp.minimum(vertical, horizontal))


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


def _cut(links: jax.Array, axis: int, *, before: bool) -> jax.Array:
    """Where a run of tied pixels begins (`before`) or ends along an axis: ``[B, H, W]``."""
    widths = [(0, 0)] * links.ndim
    widths[axis] = (1, 0) if before else (0, 1)
    return jnp.pad(~links, widths, constant_values=True)


_METHODS: dict[str, Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]] = {
    "hook": _by_hooks,
    "scan": _by_scans,
}
