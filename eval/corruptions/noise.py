"""Noise on one image ``[H, W, C]``, drawn for each value apart."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

_BYTES = 256


def gaussian_noise(key: jax.Array, image: jax.Array, deviation: float) -> jax.Array:
    """Adds normal noise."""
    return image + deviation * jax.random.normal(key, image.shape)


def shot_noise(key: jax.Array, image: jax.Array, photons: float) -> jax.Array:
    """Counts photons: ``Poisson(photons * x) / photons``.

    Pixels are taken as bytes, so there are 256 distributions, and a search in their tables takes the place of drawing
    by rejection, which is tens of times slower on a CPU.
    """
    table = photon_table(photons)  # [256, 2**n]
    levels = jnp.round(image * (_BYTES - 1)).astype(jnp.int32)
    chance = jax.random.uniform(key, image.shape)
    flat, length = jnp.asarray(table.ravel()), table.shape[1]
    count = jnp.zeros_like(levels)
    step = length // 2
    while step:  # how many entries of the row are not above the chance
        passed = flat[levels * length + count + step - 1] <= chance
        count = jnp.where(passed, count + step, count)
        step //= 2
    return count.astype(jnp.float32) / photons


def photon_table(photons: float) -> np.ndarray:
    """Chances to count at most k photons in a pixel of each byte: float32 ``[256, 2**n]``, the last ones 1."""
    most = photons + 8 * np.sqrt(photons) + 8
    counts = np.arange(1 << int(most).bit_length())
    rates = np.arange(_BYTES)[:, None] / (_BYTES - 1) * photons
    return scipy.special.pdtr(counts, rates).astype(np.float32)


def impulse_noise(key: jax.Array, image: jax.Array, amount: float) -> jax.Array:
    """Turns a part of the values to 0 or 1, with equal chance."""
    level = jax.random.uniform(key, image.shape)
    return jnp.where(level < amount / 2, 0.0, jnp.where(level < amount, 1.0, image))


def speckle_noise(key: jax.Array, image: jax.Array, deviation: float) -> jax.Array:
    """Adds normal noise in proportion to the value."""
    return image + image * deviation * jax.random.normal(key, image.shape)
