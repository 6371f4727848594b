"""How noisy an image is, told from the image alone."""

import math
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise
from isvs.colour import basis

# Half of all draws from a standard normal distribution are within this of zero.
_HALF_WITHIN = NormalDist().inv_cdf(0.75)
_FLOAT_BITS = 31  # without the sign


def noise_level(images: Any) -> jax.Array:
    """Estimates the standard deviation of the noise in each image.

    Noise differs from channel to channel and from pixel to pixel; what a camera sees hardly does both at once. So the
    estimate looks at differences between channels, and at their diagonal differences between four pixels in a square:
    the median of the absolute values is that of the noise, whatever the few edges do.

    Noise that is the same in all channels is not seen. With a single channel there is nothing to take a difference of:
    the estimate is then of the image itself, and counts fine texture as noise.

    Args:
      images: float ``[..., H, W, C]``. Pixels that are not a number do not count.

    Returns:
      float ``[...]``, in the units of the images (float32, or float64 for float64 images); zero for images of one row
      or one column. Differentiable: the median is a pixel's value.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> noise = 0.05 * jax.random.normal(jax.random.key(0), (64, 64, 3))
      >>> print(f"{noise_level(0.5 + noise):.2f} {noise_level(jnp.full((64, 64, 3), 0.5)):.2f}")
      0.05 0.00
    """
    images = _checks.images(images)
    return batchwise(_noise_level, images, trailing=3, results=[0])


@jax.jit
def _noise_level(images: jax.Array) -> jax.Array:
    *batch, height, width, channels = images.shape
    pixels = images.astype(jnp.promote_types(images.dtype, jnp.float32))
    if height < 2 or width < 2:
        return jnp.zeros(batch, pixels.dtype)
    planes = jnp.moveaxis(pixels.reshape(math.prod(batch), height, width, channels), -1, 1)
    # What is seen in all channels alike drops out; in a single channel, nothing does.
    colours = jnp.asarray(basis(channels)[1:] if channels > 1 else basis(1), planes.dtype)
    across = jnp.einsum("kc,bchw->bkhw", colours, planes, precision="highest")
    down = across[:, :, 1:] - across[:, :, :-1]
    diagonal = (down[..., 1:] - down[..., :-1]) / 2  # as large as the noise of one pixel
    sizes = jnp.abs(diagonal).reshape(diagonal.shape[0], math.prod(diagonal.shape[1:]))
    return (jax.vmap(_median)(sizes) / _HALF_WITHIN).reshape(batch)


def _median(values: jax.Array) -> jax.Array:
    """The lower median of values ``[n]`` that are not negative; those that are not a number do not count.

    Found by bisection on the bits of the floats, which sort like integers: 31 counts in place of a sort. Those of what
    is not a number come last.
    """
    fixed = jax.lax.stop_gradient(values)
    bits = jax.lax.bitcast_convert_type(fixed.astype(jnp.float32), jnp.int32)
    half = (jnp.sum(~jnp.isnan(fixed)) + 1) // 2

    def settle(turn: jax.Array, found: jax.Array) -> jax.Array:
        candidate = found | (1 << (_FLOAT_BITS - 1 - turn))
        return jnp.where(jnp.sum(bits < candidate) < half, candidate, found)

    median = jax.lax.fori_loop(0, _FLOAT_BITS, settle, jnp.zeros_like(bits[0]))
    return values[jnp.argmax(bits == median)]
