"""Differences on the pixel grid, their adjoint, and the channel groups that they form.

Arrays inside the solvers are *tiles*, ``[C, H, W * lanes]``: a few images of one size, interleaved pixel by pixel along
the last axis (``lanes`` is 1 for a single image). A group (one edge across its channels) is then a sum of a few slices,
a step down is one row and a step right is `lanes` places, so that every operation runs over long contiguous rows.
"""

import math

import jax
import jax.numpy as jnp

# Up to this many channels a sum over channels is written out; XLA then fuses it with what follows.
_WRITTEN_OUT = 8


def interleave(images: jax.Array) -> jax.Array:
    """Makes a tile of images: ``[lanes, H, W, C]`` to ``[C, H, W * lanes]``."""
    lanes, height, width, channels = images.shape
    return images.transpose(3, 1, 2, 0).reshape(channels, height, width * lanes)


def separate(values: jax.Array, lanes: int) -> jax.Array:
    """Takes a tile apart: ``[..., H, W * lanes]`` to ``[lanes, ..., H, W]``."""
    *rest, row = values.shape
    return jnp.moveaxis(values.reshape(*rest, row // lanes, lanes), -1, 0)


def across(per_image: jax.Array, width: int) -> jax.Array:
    """Lays one value per image along a row of a tile: ``[lanes]`` to ``[width * lanes]``."""
    return jnp.tile(per_image, width)


def difference_down(u: jax.Array) -> jax.Array:
    """Down: ``u[i + 1, j] - u[i, j]``, ``[C, H, W * lanes]`` to ``[C, H-1, W * lanes]``."""
    return u[:, 1:] - u[:, :-1]


def difference_right(u: jax.Array, lanes: int) -> jax.Array:
    """Right: ``u[i, j + 1] - u[i, j]``, ``[C, H, W * lanes]`` to ``[C, H, (W-1) * lanes]``."""
    return u[:, :, lanes:] - u[:, :, : u.shape[2] - lanes]


def adjoint(down: jax.Array, right: jax.Array, lanes: int) -> jax.Array:
    """What ``D^T`` makes of values on edges: ``<D u, (down, right)> = <u, adjoint(down, right)>``."""
    # One padded array and two slices of it: XLA on CPU vectorises these, but not two pads inside a sum.
    rows = jax.lax.pad(down, jnp.zeros((), down.dtype), ((0, 0, 0), (1, 1, 0), (0, 0, 0)))
    columns = jax.lax.pad(
        right, jnp.zeros((), right.dtype), ((0, 0, 0), (0, 0, 0), (lanes, lanes, 0))
    )
    return rows[:, :-1] - rows[:, 1:] + columns[:, :, :-lanes] - columns[:, :, lanes:]


def channel_dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """The inner product over channels: ``[C, ...]`` times ``[C, ...]`` to ``[...]``."""
    channels = a.shape[0]
    if channels > _WRITTEN_OUT:
        return jnp.sum(a * b, axis=0)
    total = a[0] * b[0]
    for c in range(1, channels):
        total += a[c] * b[c]
    return total


def edge_count(height: int, width: int) -> int:
    """The number of 4-neighbour pairs of a grid."""
    return (height - 1) * width + height * (width - 1)


def operator_norm_squared(height: int, width: int) -> float:
    """``||D||^2``, the largest eigenvalue of the grid's Laplacian (below 8)."""
    return sum(4 * math.sin(math.pi * (n - 1) / (2 * n)) ** 2 for n in (height, width))
