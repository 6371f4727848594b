"""`blur`: Gaussian blurring in training and, as preprocessing, in testing."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from train.methods.base import Batch, Method, Predict

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class Blur(Method):
    """Convolves with a Gaussian that is cut off at the kernel's side and sums to one.

    Attributes:
        sigma: standard deviation in pixels.
        kernel: side in pixels, odd.
    """

    sigma: float
    kernel: int
    test_codes = False
    has_level = False

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """The blurred images."""
        return self.preprocess(batch), state

    def preprocess(self, batch: Batch) -> jax.Array:
        """The blurred images."""
        return gaussian_blur(batch["image"], self.sigma, self.kernel)


def gaussian_blur(images: jax.Array, sigma: float, kernel: int) -> jax.Array:
    """Blurs along rows, then along columns; images are reflected at their borders.

    Args:
        images: float [B, H, W, C].
        sigma: standard deviation in pixels.
        kernel: side in pixels, odd.

    Returns:
        Images of the same shape.
    """
    half = kernel // 2
    offsets = np.arange(-half, half + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights = (weights / weights.sum()).tolist()
    for axis in (1, 2):
        padding = [(half, half) if i == axis else (0, 0) for i in range(4)]
        padded = jnp.pad(images, padding, mode="reflect")
        size = images.shape[axis]
        images = sum(
            (
                weight * jax.lax.slice_in_dim(padded, start, start + size, axis=axis)
                for start, weight in enumerate(weights)
            ),
            start=jnp.zeros_like(images),
        )
    return images


def make(config: "Config", steps_per_epoch: int) -> Method:
    """Blurring with `--blur-sigma` and `--blur-kernel`."""
    assert config.sparsity is not None and config.blur_kernel is not None
    return Blur(sparsity=config.sparsity, sigma=config.blur_sigma, kernel=config.blur_kernel)
