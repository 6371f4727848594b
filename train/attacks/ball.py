"""The l-infinity ball around images, cut to the cube [0, 1] of all images."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


class Ball(NamedTuple):
    """Where an attack may go.

    Attributes:
      centre: the images [B, H, W, C].
      radius: [B, H, W, C], epsilon at every pixel.
    """

    centre: jax.Array
    radius: jax.Array

    def clip(self, images: jax.Array) -> jax.Array:
        """The nearest images within the ball and the cube."""
        low = jnp.maximum(self.centre - self.radius, 0.0)
        high = jnp.minimum(self.centre + self.radius, 1.0)
        return jnp.clip(images, low, high)


def around(images: jax.Array, epsilon: ArrayLike) -> Ball:
    """The ball of radius epsilon (in pixels; a scalar, or [C] for each channel) around images."""
    epsilon = jnp.asarray(epsilon, images.dtype)
    if epsilon.shape not in ((), images.shape[-1:]):
        raise ValueError(
            f"expected epsilon to be a scalar or one number for each of the {images.shape[-1]}"
            f" channels, got {epsilon.shape=}"
        )
    return Ball(images, jnp.broadcast_to(epsilon, images.shape))
