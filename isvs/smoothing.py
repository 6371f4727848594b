"""`smooth`: images down to their large-scale structure, as one differentiable function."""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs.components import connected_components
from isvs.flow import Flow
from isvs.lbi import LBI, run_path
from isvs.projection import component_means
from isvs.scale_space import encode

Gradient = Literal["projection", "identity", "unrolled"]
_GRADIENTS = ("projection", "identity", "unrolled")


def smooth(
    images: Any,
    sparsity: Any = 0.6,
    *,
    solver: Flow | LBI = Flow(),  # noqa: B008 (frozen)
    gradient: Gradient = "projection",
) -> jax.Array:
    """Removes small-scale variation: every pixel becomes the mean of the region it belongs to.

    Regions are the connected components of pixels under the edges that are outside the support at the given level. The
    support is that of the inverse scale space (the paper's Eq. 3) or of its discretisation (Eq. 5).

    Args:
      images: float ``[..., H, W, C]`` in [0, 1]; normalise by mean and deviation afterwards, not before.
      sparsity: the fraction of edges (neighbouring pairs) in the support, in [0, 1]: 0 is flat, 1 is the original. A
        number or an array that broadcasts against the batch axes; it may be traced, and changing it does not recompile.
      solver: `isvs.Flow`, the limit dynamics, or `isvs.LBI`, the paper's iteration literally (much slower).
      gradient: how to differentiate.
        ``"projection"``: through the means with the regions held fixed. Exact almost everywhere for `Flow`; it keeps
        the regions for the backward pass and nothing of the solver.
        ``"identity"``: straight through, as if nothing had been done.
        ``"unrolled"``: through every step of the iteration, some of them computed again to save memory. `LBI` only.

    Returns:
      Images of the same shape and dtype.

    Example:
      >>> import jax
      >>> images = jax.random.uniform(jax.random.key(0), (4, 16, 16, 3))
      >>> jax.jit(smooth)(images, 0.6).shape
      (4, 16, 16, 3)
    """
    images = _checks.images(images)
    _checks.choice("gradient", gradient, _GRADIENTS)
    if not isinstance(solver, Flow | LBI):
        raise TypeError(f"solver must be isvs.Flow(...) or isvs.LBI(...), got {solver!r}")
    levels = _checks.sparsity(sparsity, images.shape[:-3])
    if isinstance(solver, Flow):
        if gradient == "unrolled":
            raise ValueError('gradient="unrolled" needs solver=isvs.LBI(...), got isvs.Flow')
        smoothed = encode(images, solver=solver).at(levels)
        return smoothed if gradient == "projection" else _with_tangent_of(images, smoothed)
    return _smooth_literally(images, levels, solver, gradient)


def _smooth_literally(
    images: jax.Array, levels: jax.Array, solver: LBI, gradient: Gradient
) -> jax.Array:
    unrolled = gradient == "unrolled"
    source = images if unrolled else jax.lax.stop_gradient(images)
    path = run_path(source, levels[None], solver, rematerialise=unrolled)
    # Before its first step the iteration is at zero; what a user means by level 0 is the mean colour.
    flat = jnp.broadcast_to(jnp.mean(source, axis=(-3, -2), keepdims=True), source.shape)
    smoothed = jnp.where((levels > 0)[..., None, None, None], path.images[0], flat)
    if unrolled:
        return smoothed
    if gradient == "identity":
        return _with_tangent_of(images, smoothed)
    # The regions' means of u are, in the limit, those of the image: differentiate these.
    regions = connected_components(~path.down[0], ~path.right[0])
    return _with_tangent_of(component_means(images, regions), smoothed)


def _with_tangent_of(source: jax.Array, values: jax.Array) -> jax.Array:
    """`values`, differentiated as if they were `source`."""
    return jax.lax.stop_gradient(values) + (source - jax.lax.stop_gradient(source))
