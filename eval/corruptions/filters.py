"""Linear filters and resampling of one image ``[H, W, C]``; borders as SciPy and OpenCV name them.

Gaussian blur, zooming and box resampling work on rows and columns apart and have constants that are known when they are
compiled, so each is two small matrices, and their borders cost nothing.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

# `nearest` repeats the last pixel, `reflect` mirrors behind it (b a | a b), `mirror` at its centre (c b | a b c).
Border = Literal["nearest", "reflect", "mirror"]
# Accelerators multiply float32 in fewer bits unless they are told not to.
_EXACT = jax.lax.Precision.HIGHEST


def apply_separable(
    image: jax.Array, rows: np.ndarray | jax.Array, columns: np.ndarray | jax.Array
) -> jax.Array:
    """``rows @ image @ columns.T`` for each channel.

    Args:
        image: ``[H, W, C]``.
        rows: ``[H', H]``.
        columns: ``[W', W]``.

    Returns:
        ``[H', W', C]``.
    """
    # With the channels first these are matrix products; with the channels last they take twice the time.
    planes = multiply_planes(jnp.moveaxis(image, 2, 0), rows, columns)
    return jnp.moveaxis(planes, 0, 2)


def multiply_planes(
    planes: jax.Array, rows: np.ndarray | jax.Array, columns: np.ndarray | jax.Array
) -> jax.Array:
    """As `apply_separable`, for planes ``[C, H, W]``."""
    matrices = jnp.asarray(rows, jnp.float32), jnp.asarray(columns, jnp.float32)
    return jnp.einsum("uh,chw,vw->cuv", matrices[0], planes, matrices[1], precision=_EXACT)


def gaussian(
    image: jax.Array, sigma: float, *, truncate: float = 4.0, border: Border = "nearest"
) -> jax.Array:
    """Gaussian blur of ``[H, W, C]``, as SciPy's `gaussian_filter` and scikit-image's `gaussian`."""
    height, width, _ = image.shape
    rows = gaussian_matrix(height, sigma, truncate, border)
    return apply_separable(image, rows, gaussian_matrix(width, sigma, truncate, border))


def gaussian_matrix(size: int, sigma: float, truncate: float, border: Border) -> np.ndarray:
    """Gaussian blur of a line of pixels, ``[size, size]``."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.eye(size)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    pixels = np.arange(size)[:, None]
    matrix = np.zeros((size, size))
    taken = _fold_index(pixels + offsets, size, border)
    np.add.at(matrix, (pixels, taken), weights / weights.sum())
    return matrix


def _fold_index(index: np.ndarray, size: int, border: Border) -> np.ndarray:
    """The pixel inside that stands for one outside."""
    if border == "nearest":
        return np.clip(index, 0, size - 1)
    if border == "reflect":
        index = index % (2 * size)
        return np.where(index < size, index, 2 * size - 1 - index)
    index = index % (2 * size - 2)
    return np.where(index < size, index, 2 * size - 2 - index)


def zoom_matrix(size: int, factor: float) -> np.ndarray:
    """The middle of a line of pixels, enlarged linearly to its old length: ``[size, size]``.

    First and last pixel of the middle part keep their places at the ends, as in SciPy's `zoom`.
    """
    part = math.ceil(size / factor)
    start = (size - part) // 2
    enlarged = round(part * factor)
    trim = (enlarged - size) // 2
    places = np.arange(trim, trim + size) * ((part - 1) / max(enlarged - 1, 1))
    low = np.clip(np.floor(places).astype(int), 0, max(part - 2, 0))
    high = np.minimum(low + 1, part - 1)
    share = places - low
    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size), start + low), 1 - share)
    np.add.at(matrix, (np.arange(size), start + high), share)
    return matrix


def box_matrix(size: int, new_size: int) -> np.ndarray:
    """Means of the pixels whose centres lie under each new pixel, as Pillow's BOX: ``[new_size, size]``.

    For enlarging this is the nearest pixel.
    """
    scale = size / new_size
    width = max(scale, 1.0)
    centres = (np.arange(new_size)[:, None] + 0.5) * scale
    distance = (np.arange(size) + 0.5 - centres) / width
    inside = ((distance > -0.5) & (distance <= 0.5)).astype(float)
    return inside / inside.sum(1, keepdims=True)


def correlate(image: jax.Array, kernel: np.ndarray, *, border: Border = "mirror") -> jax.Array:
    """Each pixel's neighbourhood times a kernel ``[k, k]`` of odd side, as OpenCV's `filter2D`."""
    margin = len(kernel) // 2
    padding = ((margin, margin), (margin, margin), (0, 0))
    mode = {"nearest": "edge", "reflect": "symmetric", "mirror": "reflect"}[border]
    padded = jnp.pad(image, padding, mode=mode)
    planes = jnp.moveaxis(padded, 2, 0)[:, None]  # [C, 1, H + k - 1, W + k - 1]
    weights = jnp.asarray(kernel, jnp.float32)[None, None]
    result = jax.lax.conv_general_dilated(planes, weights, (1, 1), "VALID", precision=_EXACT)
    return jnp.moveaxis(result[:, 0], 0, 2)  # [H, W, C]


def sample(image: jax.Array, y: jax.Array, x: jax.Array, *, border: Border) -> jax.Array:
    """Bilinear interpolation of ``[H, W, C]`` at places ``[H', W']``, in pixels."""
    height, width, _ = image.shape
    y, x = _fold_place(y, height, border), _fold_place(x, width, border)
    top, left = jnp.floor(y).astype(jnp.int32), jnp.floor(x).astype(jnp.int32)
    down, right = (y - top)[..., None], (x - left)[..., None]
    bottom, other = jnp.minimum(top + 1, height - 1), jnp.minimum(left + 1, width - 1)
    upper = image[top, left] * (1 - right) + image[top, other] * right
    lower = image[bottom, left] * (1 - right) + image[bottom, other] * right
    return upper * (1 - down) + lower * down


def _fold_place(place: jax.Array, size: int, border: Border) -> jax.Array:
    """Brings places outside into ``[0, size - 1]``; linear interpolation there gives what it would outside."""
    last = size - 1.0
    if border == "reflect":
        place = size - jnp.abs(jnp.mod(place + 0.5, 2.0 * size) - size) - 0.5
    elif border == "mirror":
        place = last - jnp.abs(jnp.mod(place, 2 * last) - last)
    return jnp.clip(place, 0, last)


def truncate_to_bytes(image: jax.Array) -> jax.Array:
    """[0, 1] to whole numbers in [0, 255], rounded down as NumPy's cast does.

    The small summand keeps values that are whole, but for the rounding of float32, where they are.
    """
    return jnp.floor(jnp.clip(image, 0, 1) * 255 + 1e-4)
