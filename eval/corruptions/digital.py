"""Changes of colour, of resolution and of shape, for one image ``[H, W, C]``."""

import jax
import jax.numpy as jnp
import numpy as np

from eval.corruptions.filters import apply_separable, box_matrix, gaussian, sample

# Of red, green and blue, as OpenCV makes grey of colour.
GREY_WEIGHTS = (0.299, 0.587, 0.114)


def to_grey(image: jax.Array) -> jax.Array:
    """Luminance ``[H, W, 1]`` of three channels; of any other number, their mean."""
    if image.shape[2] != 3:
        return image.mean(2, keepdims=True)
    return sum(w * image[..., i : i + 1] for i, w in enumerate(GREY_WEIGHTS))  # type: ignore[return-value]


def brightness(key: jax.Array, image: jax.Array, summand: float) -> jax.Array:
    """Adds to the value of HSV and keeps hue and saturation.

    The value is the largest channel, so keeping the others means scaling all channels alike; black turns grey.
    """
    value = image.max(2, keepdims=True)
    brighter = jnp.clip(value + summand, 0, 1)
    scale = brighter / jnp.where(value > 0, value, 1)
    return jnp.where(value > 0, image * scale, brighter)


def contrast(key: jax.Array, image: jax.Array, factor: float) -> jax.Array:
    """Draws each channel towards its mean."""
    mean = image.mean((0, 1), keepdims=True)
    return (image - mean) * factor + mean


def saturate(key: jax.Array, image: jax.Array, constants: tuple[float, float]) -> jax.Array:
    """Multiplies the saturation of HSV and adds to it, keeping hue and value.

    What has no hue counts as red, as it does in the conversion to HSV; an image of one channel is taken for such a
    picture and its luminance returned.
    """
    if image.shape[2] != 3:
        return to_grey(saturate(key, jnp.repeat(to_grey(image), 3, 2), constants))
    factor, summand = constants
    value = image.max(2, keepdims=True)
    span = value - image.min(2, keepdims=True)
    saturation = span / jnp.where(value > 0, value, 1)
    wanted = jnp.clip(saturation * factor + summand, 0, 1)
    # Where the channel lies between value (0) and the smallest channel (1).
    depth = (value - image) / jnp.where(span > 0, span, 1)
    red = jnp.array([0.0, 1.0, 1.0])[None, None]
    return value - value * wanted * jnp.where(span > 0, depth, red)


def pixelate(key: jax.Array, image: jax.Array, factor: float) -> jax.Array:
    """Shrinks by means over boxes and enlarges by the nearest pixel, rounding to bytes as Pillow does."""
    height, width, _ = image.shape
    small_height, small_width = int(height * factor), int(width * factor)
    narrow = _round(apply_separable(image, np.eye(height), box_matrix(width, small_width)))
    small = _round(apply_separable(narrow, box_matrix(height, small_height), np.eye(small_width)))
    rows = box_matrix(small_height, height).argmax(1)
    return small[rows][:, box_matrix(small_width, width).argmax(1)]


def _round(image: jax.Array) -> jax.Array:
    """To bytes, halves up; the small summand keeps halves that float32 has just missed."""
    return jnp.floor(image * 255 + 0.5 + 1e-3) / 255


def elastic_transform(
    key: jax.Array, image: jax.Array, constants: tuple[float, float, float]
) -> jax.Array:
    """Moves three points at random and the image with them, then displaces pixels by smooth noise.

    Constants are parts of the image's shorter side. OpenCV, which the generator uses for the first step, rounds places
    to 1/32 of a pixel; this does not.
    """
    height, width, _ = image.shape
    side = min(height, width)
    amplitude, sigma, reach = (side * constant for constant in constants)
    drawn = jax.random.uniform(key, (6 + 2 * height * width,), minval=-1.0)
    moves = reach * drawn[:6].reshape(3, 2)
    image = sample(image, *_affine_places(moves, height, width), border="mirror")
    noise = drawn[6:].reshape(height, width, 2)
    shifts = amplitude * gaussian(noise, sigma, truncate=3.0, border="reflect")
    y, x = _grid(height, width)
    return sample(image, y + shifts[..., 0], x + shifts[..., 1], border="reflect")


def _grid(height: int, width: int) -> tuple[jax.Array, jax.Array]:
    """The places of all pixels, down and right, each float ``[H, W]``."""
    y, x = jnp.meshgrid(jnp.arange(height * 1.0), jnp.arange(width * 1.0), indexing="ij")
    return y, x


def _affine_places(moves: jax.Array, height: int, width: int) -> tuple[jax.Array, jax.Array]:
    """Where pixels come from when three corners of a middle square move by ``[3, 2]``."""
    size = min(height, width) // 3
    centre = jnp.array([height // 2, width // 2], jnp.float32)
    signs = jnp.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])  # down and right
    old = centre[None] + size * signs  # [3, 2]
    new = old + moves
    first, second = new[1] - new[0], new[2] - new[0]
    determinant = first[0] * second[1] - first[1] * second[0]
    y, x = _grid(height, width)
    y, x = y - new[0, 0], x - new[0, 1]
    # A pixel's coordinates along the two moved sides are those of its source along the old ones.
    a = (y * second[1] - x * second[0]) / determinant
    b = (x * first[0] - y * first[1]) / determinant
    sides = old[1:] - old[0][None]
    return (
        old[0, 0] + a * sides[0, 0] + b * sides[1, 0],
        old[0, 1] + a * sides[0, 1] + b * sides[1, 1],
    )
