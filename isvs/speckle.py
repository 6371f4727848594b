"""The speckle rule: what is small in area is small in scale too, whatever its contrast."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise
from isvs.components import connected_components


@dataclasses.dataclass(frozen=True)
class Speckle:
    """Which spots are speckle: few pixels that stand out from all that surrounds them.

    Attributes:
      area: the most pixels that a spot may have.
      contrast: by how much, at least, it differs from every pixel next to it.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.full((5, 5, 1), 0.5).at[1:3, 1:3].set(1.0)
      >>> float(remove_speckle(image).max()), float(remove_speckle(image, Speckle(area=4)).max())
      (1.0, 0.5)
    """

    area: int = 2
    contrast: float = 0.15

    def __post_init__(self) -> None:
        _checks.count("area", self.area)
        _checks.positive("contrast", self.contrast)


def remove_speckle(images: Any, speckle: Speckle = Speckle()) -> jax.Array:
    """Replaces spots of a few pixels by the mean of what surrounds them, each channel by itself.

    In a channel, neighbouring pixels that differ by less than `contrast` are joined. A region of at most `area` pixels
    then differs from all its neighbours by `contrast` or more: it takes the mean of those that are not speckle
    themselves. Everything else stays as it is, bit for bit, and so does a spot with nothing but speckle around it.
    Pixels that are not a number are joined to nothing, and so are speckle.

    Differentiable, with the choice of pixels held fixed.

    Args:
      images: float ``[..., H, W, C]``.
      speckle: what counts as speckle.

    Example:
      >>> import jax.numpy as jnp
      >>> image = jnp.full((5, 5, 1), 0.5).at[2, 2].set(1.0)
      >>> bool((remove_speckle(image) == 0.5).all())
      True
    """
    images = _checks.images(images)
    checked(speckle)
    return remove_spots(images, jnp.float32(speckle.contrast), speckle.area)


def checked(speckle: Speckle | None) -> Speckle | None:
    """The rule itself, or an error that says what it should be."""
    if speckle is not None and not isinstance(speckle, Speckle):
        raise TypeError(f"speckle must be isvs.Speckle(...) or None, got {speckle!r}")
    return speckle


def remove_spots(images: jax.Array, contrast: jax.Array, area: int) -> jax.Array:
    """What `remove_speckle` does to checked images, with a contrast ``[]`` for all or ``[...]`` for each of them."""
    remove = functools.partial(_remove, area=area)
    return batchwise(remove, images, contrast, trailing=3, results=[3])


@functools.partial(jax.jit, static_argnames="area")
def _remove(images: jax.Array, contrast: jax.Array, area: int) -> jax.Array:
    *batch, height, width, channels = images.shape
    each = jnp.broadcast_to(contrast, batch).reshape(-1, 1)
    least = jnp.repeat(each, channels, axis=1).reshape(-1, 1, 1)  # [B C, 1, 1]
    pixels = images.reshape(math.prod(batch), height, width, channels)
    planes = jnp.moveaxis(pixels, -1, 1).reshape(-1, height, width)  # [B C, H, W]
    fixed = jax.lax.stop_gradient(planes)
    down = jnp.abs(fixed[:, 1:] - fixed[:, :-1]) < least
    right = jnp.abs(fixed[:, :, 1:] - fixed[:, :, :-1]) < least
    labels = connected_components(down, right).reshape(-1, height * width)

    def over_regions(values: jax.Array) -> jax.Array:
        """Sums over each region, at every pixel of it."""
        return _region_sums(values.reshape(labels.shape), labels).reshape(planes.shape)

    small = over_regions(jnp.ones_like(labels)) <= area
    precise = planes.astype(jnp.promote_types(planes.dtype, jnp.float32))
    total = over_regions(_neighbour_sums(jnp.where(small, 0, precise)))
    count = over_regions(_neighbour_sums((~small).astype(precise.dtype)))
    surround = (total / jnp.maximum(count, 1)).astype(planes.dtype)
    cleaned = jnp.where(small & (count > 0), surround, planes)
    return jnp.moveaxis(cleaned.reshape(-1, channels, height, width), 1, -1).reshape(images.shape)


@jax.vmap
def _region_sums(values: jax.Array, labels: jax.Array) -> jax.Array:
    sums = jnp.zeros_like(values).at[labels].add(values, mode="promise_in_bounds")
    return sums.at[labels].get(mode="promise_in_bounds")


def _neighbour_sums(planes: jax.Array) -> jax.Array:
    """The sum of the four pixels around each one."""
    wide = jnp.pad(planes, ((0, 0), (1, 1), (1, 1)))
    rows = wide[:, :-2, 1:-1] + wide[:, 2:, 1:-1]
    return rows + wide[:, 1:-1, :-2] + wide[:, 1:-1, 2:]
