"""Fog and snow on one image ``[H, W, C]``."""

import jax
import jax.numpy as jnp

from eval.corruptions.blur import blur_along
from eval.corruptions.digital import to_grey
from eval.corruptions.filters import apply_separable, truncate_to_bytes, zoom_matrix

_FIRST_WIBBLE = 100.0


def fog(key: jax.Array, image: jax.Array, constants: tuple[float, float]) -> jax.Array:
    """Adds a fractal cloud and scales the result to the image's old maximum."""
    amplitude, decay = constants
    height, width, _ = image.shape
    cloud = plasma(key, 1 << (max(height, width) - 1).bit_length(), decay)
    brightest = image.max()
    foggy = image + amplitude * cloud[:height, :width, None]
    return foggy * brightest / (brightest + amplitude)


def plasma(key: jax.Array, size: int, decay: float) -> jax.Array:
    """Diamond-square noise on a torus.

    Each round doubles the grid: first the centres of squares, then those of diamonds are set to the mean of their
    corners plus noise. The published generator scales its noise twice by the amplitude of the round, hence the square.

    Args:
        key: of the noise.
        size: side, a power of two.
        decay: by which the amplitude falls from round to round.

    Returns:
        ``[size, size]`` from 0 to 1.
    """
    # One draw for all rounds: each draw takes the compiler a second.
    noise = jax.random.uniform(key, (size * size,), minval=-1.0)
    grid, wibble = jnp.zeros((1, 1)), _FIRST_WIBBLE
    while (n := len(grid)) < size:
        fresh = wibble**2 * noise[n * n : 4 * n * n].reshape(3, n, n)
        columns = grid + jnp.roll(grid, -1, 0)
        centre = (columns + jnp.roll(columns, -1, 1)) / 4 + fresh[0]
        top = (centre + jnp.roll(centre, 1, 0) + grid + jnp.roll(grid, -1, 1)) / 4 + fresh[1]
        left = (centre + jnp.roll(centre, 1, 1) + grid + jnp.roll(grid, -1, 0)) / 4 + fresh[2]
        upper, lower = jnp.stack([grid, top], 2), jnp.stack([left, centre], 2)  # [n, n, 2]
        grid = jnp.stack([upper, lower], 1).reshape(2 * n, 2 * n)
        wibble /= decay
    grid = grid - grid.min()
    return grid / grid.max()


def snow(key: jax.Array, image: jax.Array, constants: tuple[float, ...]) -> jax.Array:
    """Whitens the image and adds flakes that fall both ways."""
    mean, deviation, zoom, threshold, radius, sigma, share = constants
    height, width, _ = image.shape
    flakes_key, angle_key = jax.random.split(key)
    flakes = mean + deviation * jax.random.normal(flakes_key, (height, width, 1))
    flakes = apply_separable(flakes, zoom_matrix(height, zoom), zoom_matrix(width, zoom))
    flakes = truncate_to_bytes(jnp.where(flakes < threshold, 0.0, flakes)) / 255
    angle = jax.random.uniform(angle_key, minval=-135.0, maxval=-45.0)
    flakes = blur_along(flakes, angle, radius, sigma)
    white = jnp.maximum(image, to_grey(image) * 1.5 + 0.5)
    return share * image + (1 - share) * white + flakes + flakes[::-1, ::-1]
