"""The whole path of an image in one number per edge: encode once, read any level."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise
from isvs.components import Method, connected_components
from isvs.flow import Flow, batch_entry_times
from isvs.projection import component_means
from isvs.speckle import Speckle, checked, remove_speckle
from isvs.stiffness import relax

# Levels are quantised to this many equal parts, so that an entry level fits a byte.
LEVELS = 255


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class ScaleSpace:
    """Images with the level at which each of their edges enters the support.

    A pytree, so it passes through `jax.jit`, `jax.vmap`, sharding and checkpoints like an array. An entry level ``k``
    says: at sparsity ``s`` the edge is in the support (its two pixels are not tied) if ``k <= round(255 s)``.

    Attributes:
      images: float ``[..., H, W, C]``.
      down: uint8 ``[..., H-1, W]``, entry levels 1 to 255 of the edges from ``(i, j)`` to ``(i + 1, j)``.
      right: uint8 ``[..., H, W-1]``, the same for the edges from ``(i, j)`` to ``(i, j + 1)``.

    Example:
      >>> import jax
      >>> space = encode(jax.random.uniform(jax.random.key(0), (8, 8, 3)))
      >>> down, right = space.support(0.6)
      >>> space.down.dtype, down.shape, f"{(down.sum() + right.sum()) / (7 * 8 + 8 * 7):.2f}"
      (dtype('uint8'), (7, 8), '0.60')
    """

    images: jax.Array
    down: jax.Array
    right: jax.Array

    def __repr__(self) -> str:
        """Types and shapes: the numbers of a data set would fill a screen. Leaves need not be arrays."""
        leaves = (self.images, self.down, self.right)
        images, down, right = (
            f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else repr(leaf)
            for leaf in leaves
        )
        return f"ScaleSpace(images={images}, down={down}, right={right})"

    def support(self, sparsity: Any) -> tuple[jax.Array, jax.Array]:
        """The edges whose two pixels are not tied at a level: bool ``[..., H-1, W]`` and ``[..., H, W-1]``.

        Args:
          sparsity: the level in [0, 1], the fraction of edges in the support: a number, or an array that broadcasts
            against the batch axes. Edges between equal pixels enter only at level 1.
        """
        levels = _checks.sparsity(sparsity, self.down.shape[:-2])
        threshold = jnp.round(levels * LEVELS).astype(jnp.uint8)[..., None, None]
        return self.down <= threshold, self.right <= threshold

    def regions(self, sparsity: Any, *, components: Method | None = None) -> jax.Array:
        """The region that each pixel belongs to at a level: pixels that are tied, directly or through others.

        Args:
          sparsity: as in `support`.
          components: how to find the tied pixels, see `isvs.connected_components`.

        Returns:
          int32 ``[..., H, W]``: the smallest flat index ``i * W + j`` in the pixel's region.
        """
        down, right = self.support(sparsity)
        return connected_components(~down, ~right, method=components)

    def at(
        self,
        sparsity: Any,
        *,
        stiffness: Any = math.inf,
        speckle: Speckle | None = None,
        components: Method | None = None,
    ) -> jax.Array:
        """The images at a level: every pixel becomes the mean over the pixels it is tied to.

        Level 1 is the image itself, bit for bit; level 0 is its mean colour. Differentiable with respect to `images`
        and `stiffness`, with the support and the choice of speckle held fixed.

        Args:
          sparsity: as in `support`.
          stiffness: of the ties, from 0 (the image) to infinity (the mean): a number, or an array that broadcasts
            against the batch axes. Finite ties keep what varies slowly within a region.
          speckle: remove spots of a few pixels. The support stays that of the images as they were encoded, which costs
            nothing more and serves clean images; for images full of speckle `isvs.smooth` removes it before it encodes.
          components: how to find the tied pixels, see `isvs.connected_components`.
        """
        springs = _checks.stiffness(stiffness, self.down.shape[:-2])
        rule = checked(speckle)
        images = self.images if rule is None else remove_speckle(self.images, rule)
        if springs is None:
            return component_means(images, self.regions(sparsity, components=components))
        down, right = self.support(sparsity)
        return tie(images, ~down, ~right, springs, components=components)


def tie(
    images: jax.Array,
    down: jax.Array,
    right: jax.Array,
    stiffness: jax.Array,
    *,
    components: Method | None = None,
) -> jax.Array:
    """Ties by springs where `stiffness` is finite, and rigidly where it is infinite."""

    def by_stiffness(*arguments: jax.Array) -> jax.Array:
        return _tie(*arguments, components=components)

    return batchwise(by_stiffness, images, down, right, stiffness, trailing=3, results=[3])


# Compiled as a whole: outside `jit` a `cond` is compiled anew in every call.
@functools.partial(jax.jit, static_argnames="components")
def _tie(
    images: jax.Array,
    down: jax.Array,
    right: jax.Array,
    stiffness: jax.Array,
    components: Method | None,
) -> jax.Array:
    rigid = jnp.isinf(stiffness)
    soft = relax(images, down, right, jnp.where(rigid, 0, stiffness))
    # Springs of a traced stiffness are hardly ever rigid: the means are taken when some are.
    hard = jax.lax.cond(
        jnp.any(rigid),
        lambda: component_means(images, connected_components(down, right, method=components)),
        lambda: images,
    )
    return jnp.where(rigid[..., None, None, None], hard, soft)


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
    flat = images.reshape(math.prod(batch), height, width, channels)
    down, right = batch_entry_times(flat, solver)
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
