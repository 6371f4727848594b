"""The projection onto images that are constant on components (the paper's Proposition 1)."""

import math

import jax
import jax.numpy as jnp

from isvs import _checks


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
    *batch, height, width, channels = images.shape
    pixels = images.reshape(math.prod(batch), height * width, channels)
    members = labels.reshape(math.prod(batch), height * width)
    means = _segment_means(pixels.astype(jnp.promote_types(images.dtype, jnp.float32)), members)
    return means.reshape(*batch, height, width, channels).astype(images.dtype)


@jax.jit
@jax.vmap
def _segment_means(pixels: jax.Array, members: jax.Array) -> jax.Array:
    """``[P, C]`` and ``[P]`` to ``[P, C]``: a scatter-add and a gather."""
    sums = jnp.zeros_like(pixels).at[members].add(pixels, mode="promise_in_bounds")
    ones = jnp.ones_like(pixels[:, 0])
    sizes = jnp.zeros_like(ones).at[members].add(ones, mode="promise_in_bounds")
    # A component of one pixel divides by one, so the finest level is the image, bit for bit.
    means = sums / jnp.maximum(sizes, 1)[:, None]
    return means.at[members].get(mode="promise_in_bounds")
