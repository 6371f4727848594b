"""Drops of water or mud on one image ``[H, W, C]``.

The generator draws water with OpenCV. Its steps are followed here one by one; approximate are only the gradient's
direction (exact angles in the place of OpenCV's fixed-point ones) and the roundings inside its distance transform.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from eval.corruptions.digital import to_grey
from eval.corruptions.filters import correlate, gaussian

_WATER = np.array([175, 238, 238]) / 255  # pale turquoise
_MUD = np.array([63, 42, 20]) / 255  # brown
_MUD_SEEN_FROM = 0.8
_WEAK_EDGE, _STRONG_EDGE = 50, 150
_FARTHEST = 20  # from an edge, in pixels
# Lengths of steps to the next pixel, to the diagonal one and of a knight's move, in OpenCV's 5x5 distances.
_STEPS = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969}
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_MEAN = np.ones((3, 3))
_SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])


def spatter(
    key: jax.Array, image: jax.Array, constants: tuple[float, float, float, float, float, bool]
) -> jax.Array:
    """Covers parts of the image with drops."""
    mean, deviation, sigma, threshold, strength, is_mud = constants
    height, width, channels = image.shape
    layer = gaussian(mean + deviation * jax.random.normal(key, (height, width, 1)), sigma)
    layer = jnp.where(layer < threshold, 0.0, layer)
    if is_mud:
        cover = gaussian((layer > threshold).astype(jnp.float32), strength)
        cover = jnp.where(cover < _MUD_SEEN_FROM, 0.0, cover)
        return image * (1 - cover) + cover * _colour(_MUD, channels)
    liquid = jnp.floor(jnp.clip(layer, 0, 1) * 255)
    drops = liquid * water_relief(liquid)
    drops = drops / jnp.maximum(drops.max(), 1e-6)
    return image + strength * drops * _colour(_WATER, channels)


def _colour(rgb: np.ndarray, channels: int) -> jax.Array:
    colour = jnp.asarray(rgb, jnp.float32)[None, None]  # [1, 1, 3]
    return colour if channels == 3 else jnp.repeat(to_grey(colour), channels, 2)


def water_relief(liquid: jax.Array) -> jax.Array:
    """Light on drops: a relief of the distance to their edges.

    Args:
        liquid: ``[H, W, 1]``, whole numbers from 0 to 255.

    Returns:
        ``[H, W, 1]`` from 0 to 255.
    """
    distance = edge_distance(find_edges(liquid[..., 0]))[..., None]
    distance = jnp.floor(correlate(distance, _MEAN) / 9 + 1e-4)
    relief = jnp.clip(correlate(equalise(distance), _RELIEF), 0, 255)
    return jnp.round(correlate(relief, _MEAN) / 9)


def find_edges(picture: jax.Array) -> jax.Array:
    """Canny's edges of ``[H, W]`` with values to 255: ridges of the gradient that touch a strong one."""
    across = correlate(picture[..., None], _SOBEL, border="nearest")[..., 0]
    down = correlate(picture[..., None], _SOBEL.T, border="nearest")[..., 0]
    size = jnp.abs(across) + jnp.abs(down)
    neighbour = _neighbours(size, 0.0)
    slope = float(np.tan(np.pi / 8))
    level = jnp.abs(down) < slope * jnp.abs(across)
    steep = jnp.abs(down) * slope > jnp.abs(across)
    falling = (across < 0) != (down < 0)
    # Ridges in four directions; one of two equal pixels side by side is kept.
    horizontal = (size > neighbour(0, -1)) & (size >= neighbour(0, 1))
    vertical = (size > neighbour(-1, 0)) & (size >= neighbour(1, 0))
    diagonal = (size > neighbour(-1, -1)) & (size > neighbour(1, 1))
    other = (size > neighbour(-1, 1)) & (size > neighbour(1, -1))
    slanted = jnp.where(falling, other, diagonal)
    ridge = jnp.where(level, horizontal, jnp.where(steep, vertical, slanted))
    weak = ridge & (size > _WEAK_EDGE)
    strong = weak & (size > _STRONG_EDGE)

    def grow(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        edges, _ = state
        near, edge_at = edges, _neighbours(edges, False)
        for y in (-1, 0, 1):
            for x in (-1, 0, 1):
                near = near | edge_at(y, x)
        grown = near & weak
        return grown, (grown != edges).any()

    edges, _ = jax.lax.while_loop(lambda state: state[1], grow, (strong, strong.any()))
    return edges


def edge_distance(edges: jax.Array) -> jax.Array:
    """Distance of each pixel of bool ``[H, W]`` to the nearest edge, 20 at most, by steps of a 5x5 mask."""
    moves = {
        (sign_y * y, sign_x * x): length
        for (a, b), length in _STEPS.items()
        for y, x in ((a, b), (b, a))
        for sign_y in (-1, 1)
        for sign_x in (-1, 1)
    }

    def spread(_: int, distance: jax.Array) -> jax.Array:
        nearest, neighbour = distance, _neighbours(distance, float(_FARTHEST))
        for (y, x), length in moves.items():
            nearest = jnp.minimum(nearest, neighbour(y, x) + length)
        return nearest

    # Every step is one pixel long at least.
    start = jnp.where(edges, 0.0, float(_FARTHEST))
    return jax.lax.fori_loop(0, _FARTHEST, spread, start)


def equalise(picture: jax.Array) -> jax.Array:
    """Spreads whole numbers up to 20 so that all of 0 to 255 is equally frequent, as OpenCV's `equalizeHist`."""
    levels = jnp.arange(_FARTHEST + 1, dtype=picture.dtype)
    counts = (picture[..., None] == levels[(None,) * picture.ndim]).sum(tuple(range(picture.ndim)))
    lowest = counts[picture.min().astype(jnp.int32)]
    above = picture.size - lowest
    table = jnp.round((jnp.cumsum(counts) - lowest) * (255.0 / jnp.maximum(above, 1)))
    return jnp.where(above == 0, picture, table[picture.astype(jnp.int32)])


def _neighbours(array: jax.Array, outside: float | bool) -> Callable[[int, int], jax.Array]:
    """A function of (y, x), each from -2 to 2, that gives the neighbour there of each element of ``[H, W]``."""
    height, width = array.shape
    padded = jnp.pad(array, 2, constant_values=outside)
    return lambda y, x: padded[2 + y : 2 + y + height, 2 + x : 2 + x + width]
