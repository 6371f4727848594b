"""JPEG compression and decompression of one image, on the device and in whole numbers.

Entropy coding loses nothing, so it is left out; the rest follows the reference codec (libjpeg, which Pillow uses) with
its accurate integer transform, halved chroma and smooth chroma enlargement, to the bit.
"""

import jax
import jax.numpy as jnp
import numpy as np

_LUMINANCE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
_CHROMINANCE = np.full((8, 8), 99)
_CHROMINANCE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]


def _cosines() -> np.ndarray:
    """The one-dimensional cosine transform times ``2**13 * sqrt(2)``, ``[8, 8]``.

    Entries are sums of rounded constants in the codec's fast scheme, so a few differ by one from the rounded cosine.
    """
    even = [
        [1, 1, 1, 1],
        [10703, 4433, -4433, -10703],
        [1, -1, -1, 1],
        [4433, -10704, 10704, -4433],
    ]
    odd = [
        [11363, 9633, 6437, 2260],
        [9633, -2259, -11362, -6436],
        [6437, -11362, 2261, 9633],
        [2260, -6436, 9633, -11363],
    ]
    matrix = np.zeros((8, 8), np.int32)
    matrix[0::2, :4], matrix[1::2, :4] = even, odd
    matrix[[0, 4]] *= 2**13
    matrix[0::2, 4:], matrix[1::2, 4:] = matrix[0::2, 3::-1], -matrix[1::2, 3::-1]
    return matrix


_COSINES = _cosines()


def jpeg_compression(key: jax.Array, image: jax.Array, quality: int) -> jax.Array:
    """Compresses and decompresses; one channel is taken for luminance, three for red, green and blue."""
    pixels = jnp.round(image * 255).astype(jnp.int32)
    if image.shape[2] != 3:
        planes = [
            _through_blocks(pixels[..., c], _LUMINANCE, quality) for c in range(image.shape[2])
        ]
        return jnp.stack(planes, -1).astype(jnp.float32) / 255
    height, width, _ = image.shape
    # The codec fills blocks to the right before it halves the chroma, and to the bottom after.
    pixels = jnp.pad(pixels, ((0, height % 2), (0, -width % 16), (0, 0)), mode="edge")
    luminance, *chrominance = _to_ycc(pixels)
    luminance = _through_blocks(luminance[:height, :width], _LUMINANCE, quality)
    small = [_through_blocks(_halve(plane), _CHROMINANCE, quality) for plane in chrominance]
    half = (width + 1) // 2
    blue, red = (_enlarge(plane[:, :half])[:height, :width] for plane in small)
    return _to_rgb(luminance, blue, red).astype(jnp.float32) / 255


def _through_blocks(plane: jax.Array, base: np.ndarray, quality: int) -> jax.Array:
    """Transforms blocks of 8x8, quantises and transforms back: int ``[H, W]`` in [0, 255]."""
    height, width = plane.shape
    padded = jnp.pad(plane - 128, ((0, -height % 8), (0, -width % 8)), mode="edge")
    rows, columns = padded.shape[0] // 8, padded.shape[1] // 8
    blocks = padded.reshape(rows, 8, columns, 8)
    cosines = jnp.asarray(_COSINES)
    # Two more bits are kept between the passes; the sums of 13 bits make up the rest of the shifts.
    half = _shift(jnp.einsum("kx,aybx->aybk", cosines, blocks), 11)
    frequencies = _shift(jnp.einsum("ly,aybk->albk", cosines, half), 15)  # 8 times the true ones
    table = jnp.asarray(quantisation_table(base, quality), jnp.int32)[None, :, None, :]
    levels = (jnp.abs(frequencies) + 4 * table) // (8 * table)
    frequencies = jnp.sign(frequencies) * levels * table
    half = _shift(jnp.einsum("ly,albk->aybk", cosines, frequencies), 11)
    blocks = _shift(jnp.einsum("kx,aybk->aybx", cosines, half), 18)
    return jnp.clip(blocks.reshape(padded.shape)[:height, :width] + 128, 0, 255)


def quantisation_table(base: np.ndarray, quality: int) -> np.ndarray:
    """A standard table ``[8, 8]`` scaled by the quality, 1 to 100."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((base * percent + 50) // 100, 1, 255)


def _shift(values: jax.Array, bits: int) -> jax.Array:
    """Divides by ``2**bits``, rounded."""
    return (values + (1 << (bits - 1))) >> bits


def _fixed(value: float) -> int:
    return int(value * 65536 + 0.5)


def _to_ycc(rgb: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Luminance, blue and red difference, each int ``[H, W]``."""
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    centre = (128 << 16) + (1 << 15) - 1
    luminance = (
        _fixed(0.299) * red + _fixed(0.587) * green + _fixed(0.114) * blue + (1 << 15)
    ) >> 16
    toward_blue = (
        _fixed(0.5) * blue - _fixed(0.16874) * red - _fixed(0.33126) * green + centre
    ) >> 16
    toward_red = (
        _fixed(0.5) * red - _fixed(0.41869) * green - _fixed(0.08131) * blue + centre
    ) >> 16
    return luminance, toward_blue, toward_red


def _to_rgb(luminance: jax.Array, toward_blue: jax.Array, toward_red: jax.Array) -> jax.Array:
    b, r = toward_blue - 128, toward_red - 128
    red = luminance + _shift(_fixed(1.402) * r, 16)
    green = luminance + _shift(-_fixed(0.34414) * b - _fixed(0.71414) * r, 16)
    blue = luminance + _shift(_fixed(1.772) * b, 16)
    return jnp.clip(jnp.stack([red, green, blue], -1), 0, 255)


def _halve(plane: jax.Array) -> jax.Array:
    """Means of 2x2 pixels; halves are rounded down and up in turn."""
    height, width = plane.shape[0] // 2, plane.shape[1] // 2
    sums = plane.reshape(height, 2, width, 2).sum((1, 3))
    rounding = jnp.asarray(1 + np.arange(width) % 2, jnp.int32)[None]
    return (sums + rounding) >> 2


def _enlarge(plane: jax.Array) -> jax.Array:
    """Twice the side by linear interpolation: a new pixel is 3/4 the nearer and 1/4 the farther old one."""
    padded = jnp.pad(plane, 1, mode="edge")
    middle = 3 * padded[1:-1]
    rows = jnp.stack([middle + padded[:-2], middle + padded[2:]], 1)  # [H, 2, W + 2]
    rows = rows.reshape(-1, padded.shape[1])
    middle = 3 * rows[:, 1:-1]
    left, right = (middle + rows[:, :-2] + 8) >> 4, (middle + rows[:, 2:] + 7) >> 4
    return jnp.stack([left, right], 2).reshape(len(rows), -1)
