"""The projection onto images that are constant on components (the paper's Proposition 1)."""

import math

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise

# Beyond each of these numbers of pixels the means are refined once more.
_LONG_SUMS = (1 << 12, 1 << 18)


def component_means(images: jax.Array, labels: jax.Array) -> jax.Array:
    """Gives every pixel the mean of its component.

    This is ``M x = (I - D_c^+ D_c) x`` with ``D_c`` the differences over tied pairs. ``M`` is symmetric, idempotent and
    linear in `images`, so that JAX differentiates it as it stands: the gradient is the same projection.

    Args:
      images: float ``[..., H, W, C]``.
      labels: int32 ``[..., H, W]``, each in ``[0, H*W)``, as `connected_components` makes them.

    Returns:
      Images of the same shape and dtype; sums are taken in float32 (float64 for float64 images).

    Example:
      >>> import jax.numpy as jnp
      >>> component_means(jnp.array([[[0.0], [1.0], [5.0]]]), jnp.array([[0, 0, 2]]))[..., 0]
      Array([[0.5, 0.5, 5. ]], dtype=float32)
    """
    images = _checks.images(images)
    labels = jnp.asarray(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise TypeError(f"labels must be integers, got dtype {labels.dtype}")
    if labels.shape != images.shape[:-1]:
        raise ValueError(
            f"labels must be {images.shape[:-1]} for images {images.shape}, got {labels.shape}"
        )

    def project(images: jax.Array, labels: jax.Array) -> jax.Array:
        *batch, height, width, channels = images.shape
        pixels = images.reshape(math.prod(batch), height * width, channels)
        members = labels.reshape(math.prod(batch), height * width)
        precise = pixels.astype(jnp.promote_types(images.dtype, jnp.float32))
        return _segment_means(precise, members).reshape(images.shape).astype(images.dtype)

    return batchwise(project, images, labels, trailing=3, results=[3])


@jax.jit
@jax.vmap
def _segment_means(pixels: jax.Array, members: jax.Array) -> jax.Array:
    """``[P, C]`` and ``[P]`` to ``[P, C]``."""
    ones = jnp.ones_like(pixels[:, :1])
    # A component of one pixel divides by one, so the finest level is the image, bit for bit.
    sizes = jnp.maximum(_segment_sums(ones, members), 1)

    def means(values: jax.Array) -> jax.Array:
        return (_segment_sums(values, members) / sizes).at[members].get(mode="promise_in_bounds")

    # A long sum in single precision drifts (by 0.2 % over a sky of a million pixels, 8 % over twelve). What is left
    # over is a smaller sum, with a smaller drift: add its mean.
    result = means(pixels)
    for limit in _LONG_SUMS:
        if pixels.shape[0] > limit:
            result += means(pixels - result)
    return result


def _segment_sums(values: jax.Array, members: jax.Array) -> jax.Array:
    return jnp.zeros_like(values).at[members].add(values, mode="promise_in_bounds")
