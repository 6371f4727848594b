"""Ties that give: the projection with pixels held together by springs instead of rigidly."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from isvs import grid
from isvs._sharding import batchwise
from isvs.batching import map_blocks

# About so many pixels are solved side by side, which keeps them within a CPU's cache.
_BLOCK_PIXELS = 1 << 16
# The largest eigenvalue of the differences' normal matrix is below this, for any image size and any ties.
_LARGEST = 8.0
_TOLERANCE = {jnp.dtype(jnp.float32): 1e-6, jnp.dtype(jnp.float64): 1e-12}


def relax(images: jax.Array, down: jax.Array, right: jax.Array, stiffness: jax.Array) -> jax.Array:
    """Solves ``(I + mu D_c^T D_c) u = x`` with ``D_c`` the differences over tied pairs.

    The minimiser of ``||u - x||^2 + mu ||D_c u||^2``. With growing `mu` it goes to the means over connected components,
    and with ``mu = 0`` it is the image, bit for bit. The matrix is symmetric, so that the gradient with respect to the
    images is the same solve; that with respect to `stiffness` is exact as well. Nothing of the iteration is stored.

    Args:
      images: float ``[..., H, W, C]``.
      down: bool ``[..., H-1, W]``; True ties pixel ``(i, j)`` to ``(i + 1, j)``.
      right: bool ``[..., H, W-1]``; True ties pixel ``(i, j)`` to ``(i, j + 1)``.
      stiffness: float ``[...]``, finite; the number of sweeps grows with its root.
    """

    def solve(*arguments: jax.Array) -> jax.Array:
        return _relax(*arguments)

    return batchwise(solve, images, down, right, stiffness, trailing=3, results=[3])


@jax.jit
def _relax(images: jax.Array, down: jax.Array, right: jax.Array, stiffness: jax.Array) -> jax.Array:
    *batch, height, width, channels = images.shape
    count = math.prod(batch)
    dtype = jnp.promote_types(images.dtype, jnp.float32)
    # Under `shard_map` the loop wants it to vary over the devices as the images do.
    stiffness = stiffness.astype(dtype) + jnp.zeros_like(images[..., 0, 0, 0], dtype)
    solved = map_blocks(
        _solve_block,
        images.reshape(count, height, width, channels).astype(dtype),
        down.reshape(count, height - 1, width),
        right.reshape(count, height, width - 1),
        stiffness.reshape(count),
        block_pixels=_BLOCK_PIXELS,
    )
    known = ~jnp.isnan(stiffness)[..., None, None, None]
    return jnp.where(known, jnp.moveaxis(solved, 1, -1).reshape(images.shape), jnp.nan).astype(
        images.dtype
    )


def _solve_block(x: jax.Array, down: jax.Array, right: jax.Array, stiffness: jax.Array) -> Any:
    """Planes ``[b, C, H, W]`` with their ties and stiffness ``[b]``."""
    mu = stiffness[:, None, None, None]

    def matrix(u: jax.Array) -> jax.Array:
        return u + mu * jax.vmap(_tied_laplacian)(u, down, right)

    def solve(_: Any, rhs: jax.Array) -> jax.Array:
        return _chebyshev(matrix, rhs, mu)

    return jax.lax.custom_linear_solve(matrix, x, solve, symmetric=True)


def _tied_laplacian(u: jax.Array, down: jax.Array, right: jax.Array) -> jax.Array:
    # Not by a product: what is not a number must not cross an edge that ties nothing.
    return grid.adjoint(
        jnp.where(down[None], grid.difference_down(u), 0),
        jnp.where(right[None], grid.difference_right(u), 0),
    )


def _chebyshev(matrix: Any, rhs: jax.Array, mu: jax.Array) -> jax.Array:
    """Chebyshev's iteration for a spectrum in ``[1, 1 + 8 mu]``, as many sweeps as the stiffest image needs.

    An image is left alone when its own sweeps are done, so that the result does not depend on what it is solved with.
    """
    centre, radius = 1 + _LARGEST / 2 * mu, _LARGEST / 2 * mu
    sweeps = _sweeps(mu)

    def sweep(
        carry: tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
        turn, u, residual, move, gain = carry
        u = u + jnp.where(turn < sweeps, move, 0)
        residual = residual - matrix(move)
        # Divided by nothing that is zero where mu is.
        divisor = 2 * centre - radius * gain
        move = radius * gain / divisor * move + 2 / divisor * residual
        return turn + 1, u, residual, move, radius / divisor

    residual = rhs - matrix(rhs)
    start = (jnp.zeros((), jnp.int32), rhs, residual, residual / centre, radius / centre)
    return jax.lax.while_loop(lambda carry: carry[0] < jnp.max(sweeps, initial=0), sweep, start)[1]


def _sweeps(mu: jax.Array) -> jax.Array:
    """How many sweeps bring an error below the tolerance; none where nothing is tied."""
    root = jnp.sqrt(1 + _LARGEST * mu)
    # The logarithm of (root - 1) / (root + 1), which is minus infinity for mu = 0.
    rate = jnp.log1p(-2 / (root + 1))
    return jnp.ceil(math.log(_TOLERANCE[mu.dtype] / 2) / rate).astype(jnp.int32)
