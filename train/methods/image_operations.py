"""AugMix's operations on pictures, for whole batches on the device; each has a Pillow namesake.

All take float pixels [B, H, W, C] in [0, 1] and count in 256 levels as Pillow does. None is among
the corruptions that networks are tested with.
"""

import jax
import jax.numpy as jnp

_TOP = 255  # the brightest level
_BORDER = 1e-3  # pixels


def _levels(images: jax.Array) -> jax.Array:
    return jnp.round(jnp.clip(images, 0, 1) * _TOP).astype(jnp.int32)


def _pixels(levels: jax.Array) -> jax.Array:
    return jnp.clip(levels, 0, _TOP).astype(jnp.float32) / _TOP


def autocontrast(images: jax.Array) -> jax.Array:
    """Stretches each channel so that its darkest pixel is black and its brightest white."""
    levels = _levels(images)
    low, high = (
        extreme(levels, axis=(1, 2), keepdims=True)  # [B, 1, 1, C]
        for extreme in (jnp.min, jnp.max)
    )
    spread = high - low
    stretched = (levels - low) * _TOP // jnp.maximum(spread, 1)
    return _pixels(jnp.where(spread > 0, stretched, levels))


def equalize(images: jax.Array) -> jax.Array:
    """Makes each channel's histogram as even as whole levels allow."""
    batch, height, width, channels = images.shape
    levels = jnp.moveaxis(_levels(images), -1, 1).reshape(batch, channels, -1)  # [B, C, H W]
    counts = jax.vmap(jax.vmap(lambda row: jnp.zeros(_TOP + 1, jnp.int32).at[row].add(1)))(levels)
    darker = jnp.cumsum(counts, axis=-1) - counts  # [B, C, 256]: pixels below each level
    brightest = jnp.sum(levels == jnp.max(levels, axis=-1, keepdims=True), axis=-1, keepdims=True)
    step = (height * width - brightest) // _TOP  # [B, C, 1]
    table = jnp.minimum((step // 2 + darker) // jnp.maximum(step, 1), _TOP)
    table = jnp.where(step > 0, table, jnp.arange(_TOP + 1)[None, None, :])
    evened = jnp.take_along_axis(table, levels, axis=-1)
    return _pixels(jnp.moveaxis(evened.reshape(batch, channels, height, width), 1, -1))


def posterize(images: jax.Array, bits: jax.Array) -> jax.Array:
    """Keeps the highest `bits` (int [B]) of every level's eight."""
    unit = jnp.left_shift(1, 8 - bits)[:, None, None, None]
    return _pixels(_levels(images) // unit * unit)


def solarize(images: jax.Array, threshold: jax.Array) -> jax.Array:
    """Inverts levels at or above `threshold` (int [B], 0 to 256)."""
    levels = _levels(images)
    return _pixels(jnp.where(levels < threshold[:, None, None, None], levels, _TOP - levels))


def warp(images: jax.Array, matrix: jax.Array) -> jax.Array:
    """An affine map with bilinear interpolation; what comes from outside is black.

    Args:
        images: [B, H, W, C].
        matrix: [B, 2, 3], from the place (x, y, 1) of a pixel's centre in the result to that in the
            picture, in pixels from the top left corner: Pillow's convention.

    Returns:
        [B, H, W, C], in whole levels.
    """
    _, height, width, _ = images.shape
    x, y = jnp.meshgrid(jnp.arange(width) + 0.5, jnp.arange(height) + 0.5)
    places = jnp.stack([x, y, jnp.ones_like(x)])  # [3, H, W]

    def one(image: jax.Array, matrix: jax.Array) -> jax.Array:
        x, y = jnp.tensordot(matrix, places, axes=1)  # [H, W] each
        # A place on the border must not fall on its other side by rounding.
        inside = (x > -_BORDER) & (x < width - _BORDER) & (y > -_BORDER) & (y < height - _BORDER)
        left, top = jnp.floor(x - 0.5), jnp.floor(y - 0.5)
        right, bottom = (x - 0.5 - left)[..., None], (y - 0.5 - top)[..., None]  # shares

        def at(row: jax.Array, column: jax.Array) -> jax.Array:
            row = jnp.clip(row, 0, height - 1).astype(jnp.int32)
            column = jnp.clip(column, 0, width - 1).astype(jnp.int32)
            return image.at[row, column].get(mode="promise_in_bounds")  # [H, W, C]

        above = at(top, left) * (1 - right) + at(top, left + 1) * right
        below = at(top + 1, left) * (1 - right) + at(top + 1, left + 1) * right
        return jnp.where(inside[..., None], above * (1 - bottom) + below * bottom, 0)

    return _pixels(_levels(jax.vmap(one)(images, matrix)))


def rotation(degrees: jax.Array, height: int, width: int) -> jax.Array:
    """The matrix [B, 2, 3] that turns a picture counter-clockwise about its middle."""
    angle = -jnp.deg2rad(degrees)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    x, y = width / 2, height / 2
    return _matrix(
        (cosine, sine, x - x * cosine - y * sine), (-sine, cosine, y + x * sine - y * cosine)
    )


def shear(across: jax.Array, down: jax.Array) -> jax.Array:
    """The matrix [B, 2, 3] that shifts rows by `across` per pixel down, and columns by `down`."""
    one, zero = jnp.ones_like(across), jnp.zeros_like(across)
    return _matrix((one, across, zero), (down, one, zero))


def translation(across: jax.Array, down: jax.Array) -> jax.Array:
    """The matrix [B, 2, 3] that moves a picture left by `across` pixels and up by `down`."""
    one, zero = jnp.ones_like(across), jnp.zeros_like(across)
    return _matrix((one, zero, across), (zero, one, down))


def _matrix(first: tuple[jax.Array, ...], second: tuple[jax.Array, ...]) -> jax.Array:
    return jnp.stack([jnp.stack(first, -1), jnp.stack(second, -1)], -2)


OPERATIONS = (
    *("autocontrast", "equalize", "posterize", "solarize"),
    *("rotate", "shear_x", "shear_y", "translate_x", "translate_y"),
)


def operate(
    images: jax.Array, operation: jax.Array, strength: jax.Array, sign: jax.Array
) -> jax.Array:
    """One operation on every image, its own.

    The five that move pixels are one map with different matrices. A batch computes all five kinds
    and each image takes its own, since a choice per image runs every branch anyway.

    Args:
        images: [B, H, W, C].
        operation: int [B], a place in `OPERATIONS`.
        strength: float [B] in [0, 10].
        sign: float [B], 1 or -1: the direction of movements.

    Returns:
        [B, H, W, C].
    """
    _, height, width, _ = images.shape
    none = jnp.zeros_like(strength)
    slope = sign * strength * 0.3 / 10
    across, down = sign * _whole(strength, width / 3), sign * _whole(strength, height / 3)
    matrices = jnp.stack(
        [
            rotation(sign * _whole(strength, 30), height, width),
            *(shear(slope, none), shear(none, slope)),
            *(translation(across, none), translation(none, down)),
        ]
    )  # [5, B, 2, 3]
    kind = jnp.clip(operation - 4, 0, 4)
    matrix = jnp.take_along_axis(matrices, kind[None, :, None, None], axis=0)[0]
    results = (
        autocontrast(images),
        equalize(images),
        posterize(images, 4 - _whole(strength, 4)),
        solarize(images, 256 - _whole(strength, 256)),
    )
    chosen = warp(images, matrix)
    for place, result in enumerate(results):
        chosen = jnp.where((operation == place)[:, None, None, None], result, chosen)
    return chosen


def _whole(strength: jax.Array, most: float) -> jax.Array:
    """A strength in [0, 10] as a whole number up to `most`, cut off as Pillow's users do."""
    return jnp.floor(strength * most / 10).astype(jnp.int32)
