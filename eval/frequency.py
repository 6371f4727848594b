"""Frequencies of images: low and high components, mean spectrum, radial profile.

Frequencies are centred: index n // 2 of a side of n pixels is frequency zero, and distances are in
cycles per image along each axis.
"""

import jax
import jax.numpy as jnp
import numpy as np

# Amplitudes below it are rounding errors of float32; their logarithm would be noise.
AMPLITUDE_FLOOR = 1e-6


def split(images: jax.Array, radius: jax.Array | float) -> tuple[jax.Array, jax.Array]:
    """Splits images into the frequencies inside a disc and the rest.

    The disc is hard, sqrt((i - n/2)^2 + (j - n/2)^2) < radius on the centred spectrum of every
    channel (Wang et al. 2020). Sides that are odd have their centre at frequency zero, so that the
    disc is symmetric and the result real. Nothing is clipped: components leave [0, 1].

    Args:
        images: float [B, H, W, C].
        radius: of the disc in cycles per image; may be traced.

    Returns:
        Low and high components [B, H, W, C], which add up to the images.
    """
    height, width = _sides(images)
    inside = jnp.fft.ifftshift(jnp.asarray(_distance(height, width)) < radius)
    # The disc is symmetric, so half of the spectrum tells all of it.
    half = jnp.fft.rfft2(images, axes=(1, 2))  # [B, H, W // 2 + 1, C]
    kept = half * inside[None, :, : width // 2 + 1, None]
    low = jnp.fft.irfft2(kept, s=(height, width), axes=(1, 2)).astype(images.dtype)
    return low, images - low


def amplitude(images: jax.Array) -> jax.Array:
    """Centred amplitude of every image and channel, scaled so that white noise keeps its deviation.

    Args:
        images: float [B, H, W, C], or features with any number of channels.

    Returns:
        [B, H, W, C], zero or more.
    """
    _sides(images)
    transformed = jnp.fft.fft2(images, axes=(1, 2), norm="ortho")
    return jnp.fft.fftshift(jnp.abs(transformed), axes=(1, 2))


def spectrum(images: jax.Array) -> jax.Array:
    """Mean log-amplitude over images and channels, centred.

    Args:
        images: float [B, H, W, C], or features with any number of channels.

    Returns:
        Natural logarithms [H, W], at least log(`AMPLITUDE_FLOOR`).
    """
    return jnp.log(jnp.maximum(amplitude(images), AMPLITUDE_FLOOR)).mean((0, 3))


def radial_profile(power: jax.Array) -> jax.Array:
    """Means of a centred spectrum over rings one cycle wide.

    Args:
        power: [H, W], such as a mean of squared amplitudes or of their logarithms.

    Returns:
        [min(H, W) // 2 + 1]; entry k is the mean over the frequencies whose distance rounds to k.
        Corners, which the largest full ring leaves out, are not counted.
    """
    if power.ndim != 2:
        raise ValueError(f"expected a spectrum [H, W], got {power.shape=}")
    height, width = power.shape
    rings = np.rint(_distance(height, width)).astype(np.int32)  # [H, W]
    bins = min(height, width) // 2 + 1
    counts = np.bincount(rings.ravel(), minlength=bins)
    sums = jnp.zeros(len(counts), power.dtype).at[rings.ravel()].add(power.ravel())
    return sums[:bins] / jnp.asarray(counts[:bins], power.dtype)


def _sides(images: jax.Array) -> tuple[int, int]:
    if images.ndim != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"expected floating images [B, H, W, C], got {images.dtype} {images.shape}"
        )
    return images.shape[1], images.shape[2]


def _distance(height: int, width: int) -> np.ndarray:
    """Distance of every place of the centred spectrum from frequency zero, float32 [H, W]."""
    rows = np.arange(height) - height // 2
    columns = np.arange(width) - width // 2
    return np.hypot(*np.meshgrid(rows, columns, indexing="ij")).astype(np.float32)
