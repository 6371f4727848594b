"""The whole path of an image in one number per edge: encode once, read any level."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise
from isvs.batching import map_blocks
from isvs.components import Method, connected_components
from isvs.flow import Flow, entry_times
from isvs.projection import component_means

# Levels are quantised to this many equal parts, so that an entry level fits a byte.
LEVELS = 255


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ScaleSpace:
    """Images with the level at which each of their edges enters the support.

    A pytree, so it passes through `jax.jit`, `jax.vmap`, sharding and checkpoints like an array. An entry level ``k``
    says: at sparsity ``s`` the edge is in the support (its two pixels are not tied) if ``k <= round(255 s)``.

    Attributes:
      images: float ``[..., H, W, C]``.
      down: uint8 ``[..., H-1, W]``, entry levels 1 to 255 of the edges from ``(i, j)`` to ``(i + 1, j)``.
      right: uint8 ``[..., H, W-1]``, the same for the edges from ``(i, j)`` to ``(i, j + 1)``.
    """

    images: jax.Array
    down: jax.Array
    right: jax.Array

    def support(self, sparsity: Any) -> tuple[jax.Array, jax.Array]:
        """The edges whose two pixels are not tied at a level: bool ``[..., H-1, W]`` and ``[..., H, W-1]``.

        Args:
          sparsity: the level in [0, 1], the fraction of edges in the support: a number, or an array that broadcasts
            against the batch axes. Edges between equal pixels enter only at level 1.
        """
        levels = _checks.sparsity(sparsity, self.down.shape[:-2])
        threshold = jnp.round(levels * LEVELS).astype(jnp.uint8)[..., None, None]
        return self.down <= threshold, self.right <= threshold

    def at(self, sparsity: Any, *, components: Method | None = None) -> jax.Array:
        """The images at a level: every pixel becomes the mean over the pixels it is tied to.

        Level 1 is the image itself, bit for bit; level 0 is its mean colour. Differentiable with respect to `images`,
        with the support held fixed.

        Args:
          sparsity: as in `support`.
          components: how to find the tied pixels, see `isvs.connected_components`.
        """
        down, right = self.support(sparsity)
        return component_means(self.images, connected_components(~down, ~right, method=components))


def encode(images: Any, *, solver: Flow = Flow()) -> ScaleSpace:  # noqa: B008 (frozen)
    """Finds the entry level of every edge: one run, whatever levels are read later.

    Args:
      images: float ``[..., H, W, C]`` in [0, 1].
      solver: the limit solver's settings.

    Example:
      >>> import jax
      >>> image = jax.random.uniform(jax.random.key(0), (8, 8, 3))
      >>> space = encode(image)
      >>> space.at(0.5).shape, bool((space.at(1.0) == image).all())
      ((8, 8, 3), True)
    """
    images = _checks.images(images)
    if not isinstance(solver, Flow):
        raise TypeError(f"encode needs solver=isvs.Flow(...), got {type(solver).__name__}")
    solve = functools.partial(entry_levels, solver=solver)
    down, right = batchwise(solve, images, trailing=3, results=[2, 2])
    return ScaleSpace(images, down, right)


@functools.partial(jax.jit, static_argnames="solver")
def entry_levels(images: jax.Array, solver: Flow) -> tuple[jax.Array, jax.Array]:
    """The entry levels, uint8 ``[..., H-1, W]`` and ``[..., H, W-1]``, of checked images."""
    *batch, height, width, channels = images.shape
    # Levels are piecewise constant in the pixels: nothing here is to be differentiated.
    pixels = jax.lax.stop_gradient(images).astype(jnp.promote_types(images.dtype, jnp.float32))

    solve = jax.vmap(functools.partial(entry_times, solver=solver))
    flat = pixels.reshape(math.prod(batch), height, width, channels)
    down, right = map_blocks(solve, flat, block_pixels=solver.block_pixels)
    times = jnp.concatenate([_flat(down), _flat(right)], axis=-1)  # [B, E]
    levels = jax.vmap(_quantised_ranks)(times)
    split = (height - 1) * width
    return (
        levels[:, :split].reshape(*batch, height - 1, width),
        levels[:, split:].reshape(*batch, height, width - 1),
    )


def _flat(edges: jax.Array) -> jax.Array:
    return edges.reshape(edges.shape[0], edges.shape[1] * edges.shape[2])


def _quantised_ranks(times: jax.Array) -> jax.Array:
    """Ranks of the entry times ``[E]`` as levels 1 to 255; equal times get equal levels.

    Level ``k`` is the smallest whose share ``k / 255`` of all edges, rounded, includes the edge.
    """
    edges = times.shape[0]
    if edges == 0:
        return jnp.zeros_like(times, dtype=jnp.uint8)
    # Positive floats sort like their bits, and XLA sorts integers several times faster on CPU.
    keys = jax.lax.bitcast_convert_type(times.astype(jnp.float32), jnp.int32)
    last_included = [max(round(k * edges / LEVELS), 1) - 1 for k in range(1, LEVELS)]
    # A level that includes no edge takes none: its bound is below every time.
    empty = jnp.array([round(k * edges / LEVELS) == 0 for k in range(1, LEVELS)])
    bounds = jnp.where(empty, -1, jnp.sort(keys)[jnp.array(last_included)])
    levels = 1 + jnp.searchsorted(bounds, keys, side="left", method="scan_unrolled")
    return jnp.where(jnp.isinf(times), LEVELS, levels).astype(jnp.uint8)
