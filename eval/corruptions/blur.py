"""Blurs of one image ``[H, W, C]``."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from eval.corruptions.filters import (
    correlate,
    gaussian,
    multiply_planes,
    truncate_to_bytes,
    zoom_matrix,
)

# Parts of the motion that weigh less than this change no byte.
_NEGLIGIBLE = 1e-6


def gaussian_blur(key: jax.Array, image: jax.Array, sigma: float) -> jax.Array:
    """Blurs with a Gaussian."""
    return gaussian(image, sigma)


def glass_blur(key: jax.Array, image: jax.Array, constants: tuple[float, int, int]) -> jax.Array:
    """Blurs, replaces pixels by near ones, and blurs again.

    The published generator goes through the pixels from the last to the first and means to swap each with a random
    neighbour; as its two names stand for the same memory, it copies the neighbour and leaves that as it is. So does
    this.
    """
    sigma, reach, rounds = constants
    image = truncate_to_bytes(gaussian(image, sigma)) / 255
    height, width, channels = image.shape
    shape = (rounds, 2, height - 2 * reach, width - 2 * reach)
    drawn = jax.random.uniform(key, shape, minval=-reach, maxval=reach)
    pixels = image.reshape(height * width, channels)
    for shifts in jnp.floor(drawn).astype(jnp.int32):
        pixels = pixels[copied_pixels(shifts, height, width, reach)]
    return gaussian(pixels.reshape(image.shape), sigma)


def copied_pixels(shifts: jax.Array, height: int, width: int, reach: int) -> jax.Array:
    """Where each pixel's colour comes from when pixels are copied one after the other, last pixel first.

    A pixel takes the old colour of one that comes later in that order, and the new colour of one that has had its turn.
    The latter are chains of copies; following all at once, in leaps of twice the length, takes the place of the loop.

    Args:
        shifts: ``[2, height - 2 * reach, width - 2 * reach]``, down and right, from -reach to reach - 1.
        height: of the image.
        width: of the image.
        reach: rows and columns up to this one are not replaced, nor the last ``reach - 1``.

    Returns:
        int32 ``[height * width]``, rows of the flat image.
    """
    places = jnp.arange(height * width, dtype=jnp.int32).reshape(height, width)
    margins = ((reach + 1, reach - 1), (reach + 1, reach - 1))
    turn = np.pad(np.ones(shifts.shape[1:], bool), margins)
    source = (places + jnp.pad(shifts[0] * width + shifts[1], margins)).ravel()
    if reach == 1:  # only up and left, where no pixel has had its turn
        return source
    chained = (source > places.ravel()) & jnp.asarray(turn.ravel())[source]
    ahead = jnp.where(chained, source, places.ravel())

    def leap(_: int, ahead: jax.Array) -> jax.Array:
        return ahead[ahead]

    return source[jax.lax.fori_loop(0, math.ceil(math.log2(height * width)), leap, ahead)]


def defocus_blur(key: jax.Array, image: jax.Array, constants: tuple[float, float]) -> jax.Array:
    """Averages over a disc with a softened edge."""
    return correlate(image, disc_kernel(*constants))


def disc_kernel(radius: float, softening: float) -> np.ndarray:
    """A disc blurred by a Gaussian of 3x3 pixels (5x5 if its radius is above 8), without its margin of zeros."""
    reach = 8 if radius <= 8 else int(radius)
    offsets = np.arange(-reach, reach + 1)
    disc = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(float)
    near = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    weights = np.exp(-0.5 * (near / softening) ** 2)
    weights /= weights.sum()
    margin = len(near) // 2
    padded = np.pad(disc / disc.sum(), margin, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (len(near), len(near)))
    kernel = np.einsum("hwij,i,j->hw", windows, weights, weights)
    used = np.flatnonzero(kernel.max(0) > 0)
    return kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1]


def motion_blur(key: jax.Array, image: jax.Array, constants: tuple[float, float]) -> jax.Array:
    """Blurs along a line, 45 degrees at most from the horizontal."""
    angle = jax.random.uniform(key, minval=-45.0, maxval=45.0)
    return blur_along(image, angle, *constants)


def blur_along(image: jax.Array, angle: jax.Array, radius: float, sigma: float) -> jax.Array:
    """Averages shifted copies with the weights of half a Gaussian, as ImageMagick's motion blur does.

    Copy i is shifted by i pixels along the line, rounded to whole ones; the border is repeated.

    Args:
        image: ``[H, W, C]``.
        angle: in degrees, clockwise from the horizontal.
        radius: there are ``2 * ceil(radius) + 1`` copies.
        sigma: of the Gaussian.

    Returns:
        ``[H, W, C]``, rounded to bytes as the generator's PNG files are.
    """
    copies = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-0.5 * (copies / sigma) ** 2)
    weights /= weights.sum()
    kept = int((weights > _NEGLIGIBLE).sum())
    radians = jnp.deg2rad(angle)
    steps = jnp.arange(kept, dtype=jnp.float32)
    down = jnp.ceil(steps * jnp.sin(radians) - 0.5).astype(jnp.int32)  # [copies]
    right = jnp.ceil(steps * jnp.cos(radians) - 0.5).astype(jnp.int32)
    padded = jnp.pad(image, ((kept, kept), (kept, kept), (0, 0)), mode="edge")

    def add(total: jax.Array, copy: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        weight, y, x = copy
        shifted = jax.lax.dynamic_slice(padded, (kept + y, kept + x, jnp.int32(0)), image.shape)
        return total + weight * shifted, None

    weighted = (jnp.asarray(weights[:kept], jnp.float32), down, right)
    total, _ = jax.lax.scan(add, jnp.zeros_like(image), weighted)
    return jnp.round(total * 255) / 255


def zoom_blur(key: jax.Array, image: jax.Array, factors: np.ndarray) -> jax.Array:
    """Averages the image with enlarged copies of its middle."""
    height, width, _ = image.shape
    rows = np.stack([zoom_matrix(height, factor) for factor in factors])  # [F, H, H]
    columns = np.stack([zoom_matrix(width, factor) for factor in factors])
    planes = jnp.moveaxis(image, 2, 0)  # [C, H, W]

    # One copy after the other: all at once would take many times the memory of the batch.
    def add(total: jax.Array, matrices: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + multiply_planes(planes, *matrices), None

    matrices = (jnp.asarray(rows, jnp.float32), jnp.asarray(columns, jnp.float32))
    total, _ = jax.lax.scan(add, planes, matrices)
    return jnp.moveaxis(total, 0, 2) / (len(factors) + 1)
