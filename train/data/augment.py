"""Random crop and flip, on the device, inside the jitted step.

Both act on what the network is to see, after smoothing. Their chance depends on the key and the
batch size alone, so the same key moves a batch and its smoothed form in the same way.

One gather of rows and columns does all. On CPU XLA it takes about 0.3 ms for 128 images of
32x32x3; slices of padded images take a third more, sums of masked shifts sixty times that.
"""

import jax
import jax.numpy as jnp

from train.data.crops import RATIO, SCALE


def augment(
    key: jax.Array, images: jax.Array, crop_padding: int = 4, flip: bool = True
) -> jax.Array:
    """`random_flip` of `random_crop`, in one pass.

    Args:
        key: of this step; crop and flip take their own keys from it.
        images: [B, H, W, C], any type.
        crop_padding: greatest shift in pixels; 0 shifts none.
        flip: whether to mirror half of the images.

    Returns:
        [B, H, W, C], the same type.
    """
    crop_key, flip_key = jax.random.split(key)
    rows, columns = _shifted(crop_key, images.shape, crop_padding)  # [B, H], [B, W]
    if flip:
        columns = jnp.where(_coin(flip_key, len(images)), columns[:, ::-1], columns)
    elif crop_padding == 0:
        return images
    return _gather(images, rows, columns)


def random_crop(key: jax.Array, images: jax.Array, padding: int = 4) -> jax.Array:
    """A window of the image's own size out of the image padded by reflection.

    Reflection adds no edge that the picture does not have; zeros would draw a frame, which is
    large-scale structure.

    Args:
        key: source of the B shifts.
        images: [B, H, W, C], any type.
        padding: greatest shift in pixels, less than H and W.

    Returns:
        [B, H, W, C], the same type.
    """
    return _gather(images, *_shifted(key, images.shape, padding))


def random_flip(key: jax.Array, images: jax.Array) -> jax.Array:
    """Mirrors each image left to right with probability one half.

    Args:
        key: source of the B decisions.
        images: [B, H, W, C], any type.

    Returns:
        [B, H, W, C], the same type.
    """
    return jnp.where(_coin(key, len(images))[:, :, None, None], images[:, :, ::-1, :], images)


def random_resized_crop(key: jax.Array, images: jax.Array, flip: bool = True) -> jax.Array:
    """`crops.RandomResizedCrop` on the device, for pictures that were smoothed there.

    Boxes are drawn as on the host, but one that does not fit is cut to the picture's side instead
    of drawn again.

    Args:
        key: source of the B boxes and flips.
        images: float [B, H, W, C].
        flip: whether to mirror half of the images.

    Returns:
        [B, H, W, C], the same type.
    """
    batch, height, width, _ = images.shape
    box_key, place_key, flip_key = jax.random.split(key, 3)
    low, high = jnp.array([SCALE[0], jnp.log(RATIO[0])]), jnp.array([SCALE[1], jnp.log(RATIO[1])])
    area, log_ratio = jax.random.uniform(box_key, (batch, 2), minval=low, maxval=high).T
    shape = jnp.exp(jnp.stack([-log_ratio, log_ratio], axis=1) / 2)  # [B, 2]
    sides = jnp.minimum(jnp.sqrt(area)[:, None] * shape, 1.0)  # height and width, as shares
    corner = jax.random.uniform(place_key, (batch, 2)) * (1 - sides)
    size = jnp.array([height, width], jnp.float32)

    def crop(image: jax.Array, side: jax.Array, corner: jax.Array) -> jax.Array:
        return jax.image.scale_and_translate(
            image, image.shape, (0, 1), 1 / side, -corner * size / side, "linear", antialias=True
        )

    cropped = jax.vmap(crop)(images, sides, corner)
    return random_flip(flip_key, cropped) if flip else cropped


def _coin(key: jax.Array, count: int) -> jax.Array:
    return jax.random.bernoulli(key, 0.5, (count, 1))


def _shifted(key: jax.Array, shape: tuple[int, ...], padding: int) -> tuple[jax.Array, jax.Array]:
    """Rows [B, H] and columns [B, W] of the original that each window shows."""
    if len(shape) != 4:
        raise ValueError(f"images: expected [B, H, W, C], got {list(shape)}")
    batch, height, width, _ = shape
    if not 0 <= padding < min(height, width):
        raise ValueError(
            f"padding: expected 0 to {min(height, width) - 1} for images of "
            f"{height}x{width}, got {padding}"
        )
    shift = jax.random.randint(key, (2, batch, 1), -padding, padding + 1)
    return (
        _reflect(jnp.arange(height)[None, :] + shift[0], height),
        _reflect(jnp.arange(width)[None, :] + shift[1], width),
    )


def _reflect(position: jax.Array, size: int) -> jax.Array:
    """Brings positions up to one image outside back in; the edge itself is not repeated."""
    position = jnp.abs(position)
    return jnp.where(position >= size, 2 * (size - 1) - position, position)


def _gather(images: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    # By vmap, the batch stays a batch axis of the gather: sharded images need no exchange.
    return jax.vmap(
        lambda image, r, c: image.at[r[:, None], c[None, :]].get(mode="promise_in_bounds")
    )(images, rows, columns)
