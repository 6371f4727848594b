"""`smooth`: images down to their large-scale structure, as one differentiable function."""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs.automatic import AutoLevel, clean
from isvs.components import connected_components
from isvs.flow import Flow
from isvs.lbi import LBI, run_path
from isvs.projection import component_means
from isvs.scale_space import encode
from isvs.speckle import Speckle, checked, remove_speckle

Gradient = Literal["projection", "identity", "unrolled"]
_GRADIENTS = ("projection", "identity", "unrolled")


def smooth(
    images: Any,
    sparsity: Any = 0.6,
    *,
    stiffness: Any = math.inf,
    speckle: Speckle | None = None,
    solver: Flow | LBI | None = None,
    gradient: Gradient = "projection",
) -> jax.Array:
    """Removes small-scale variation: every pixel becomes the mean of the region it belongs to.

    Regions are the connected components of pixels under the edges that are outside the support at the given level. The
    support is that of the inverse scale space (the paper's Eq. 3) or of its discretisation (Eq. 5).

    Args:
      images: float ``[..., H, W, C]`` in [0, 1]; normalise by mean and deviation afterwards, not before.
      sparsity: the fraction of edges (neighbouring pairs) in the support, in [0, 1]: 0 is flat, 1 is the original. A
        number or an array that broadcasts against the batch axes; it may be traced, and changing it does not recompile.
        ``"auto"``, short for `isvs.AutoLevel()`, cleans instead: it removes speckle, and smooths an image as much as
        its noise asks for: a clean one not at all, nor a large one in strong noise.
      stiffness: of what ties the pixels of a region, in [0, 1e4] or infinite: with infinity, the paper's projection,
        they all become their mean; finite ties keep what varies slowly. A number or an array, like `sparsity`; a traced
        one that is outside is brought to the nearest end.
      speckle: `isvs.Speckle()` removes spots of a few pixels first, however high their contrast, as
        `isvs.remove_speckle` does.
      solver: `isvs.Flow`, the limit dynamics, or `isvs.LBI`, the paper's iteration literally (much slower). By default
        ``isvs.Flow()``, and for an automatic level that of the policy.
      gradient: how to differentiate.
        ``"projection"``: through the means, or the solve for finite ties, with the regions held fixed. Exact almost
        everywhere for `Flow`; it keeps the regions for the backward pass and nothing of the solver.
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
    if solver is not None and not isinstance(solver, Flow | LBI):
        raise TypeError(f"solver must be isvs.Flow(...) or isvs.LBI(...), got {solver!r}")
    policy = _policy(sparsity, stiffness, speckle)
    if isinstance(solver, LBI):
        _check_literal(policy, stiffness, speckle)
        levels = _checks.sparsity(sparsity, images.shape[:-3])
        return _smooth_literally(images, levels, solver, gradient)
    if gradient == "unrolled":
        raise ValueError('gradient="unrolled" needs solver=isvs.LBI(...), got isvs.Flow')
    if policy is None:
        rule = checked(speckle)
        # What is wrong with them should be said before the solver runs, not after.
        _checks.sparsity(sparsity, images.shape[:-3])
        _checks.stiffness(stiffness, images.shape[:-3])
        # Before the support is sought: high contrast would have taken most of it.
        pixels = images if rule is None else remove_speckle(images, rule)
        if _is(sparsity, 1):  # nothing is tied, and there is nothing to solve
            smoothed = pixels
        else:
            smoothed = encode(pixels, solver=solver or Flow()).at(sparsity, stiffness=stiffness)
    else:
        smoothed = clean(images, dataclasses.replace(policy, solver=solver or policy.solver))
    return smoothed if gradient == "projection" else _with_tangent_of(images, smoothed)


def _policy(sparsity: Any, stiffness: Any, speckle: Speckle | None) -> AutoLevel | None:
    """What chooses the level, or None if it is given."""
    if isinstance(sparsity, str) and sparsity != "auto":
        raise TypeError(
            f'sparsity must be a number or an array, "auto" or isvs.AutoLevel(...), got {sparsity!r}'
        )
    if isinstance(sparsity, str):
        sparsity = AutoLevel()
    if not isinstance(sparsity, AutoLevel):
        return None
    if not _is(stiffness, math.inf) or speckle is not None:
        raise ValueError(
            "an automatic level chooses stiffness and speckle itself; "
            "give isvs.AutoLevel(stiffness=..., speckle=...) in place of the two arguments"
        )
    return sparsity


def _check_literal(policy: AutoLevel | None, stiffness: Any, speckle: Speckle | None) -> None:
    if policy is not None or not _is(stiffness, math.inf) or speckle is not None:
        raise ValueError(
            "an automatic level, a finite stiffness and speckle need solver=isvs.Flow(...), got isvs.LBI"
        )


def _is(value: Any, number: float) -> bool:
    """Whether a value is known to be this number."""
    return isinstance(value, int | float) and value == number


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
