"""`noise`: Gaussian noise on half of every batch, the plainest augmentation against corruption."""

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from train.methods.base import Batch, Method, Predict, Views
from train.methods.over_view import OverView

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class GaussianNoise(OverView):
    """Shows a random half of the images with noise.

    Attributes:
        sigma: standard deviation, in pixel units.
    """

    sigma: float

    def views(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> Views:
        """Images of which exactly half, rounded down, are ``clip(x + sigma n, 0, 1)``."""
        half_key, noise_key = jax.random.split(key)
        count = len(images)
        chosen = jax.random.permutation(half_key, count) < count // 2  # [B]
        noisy = images + self.sigma * jax.random.normal(noise_key, images.shape)
        return (jnp.where(chosen[:, None, None, None], jnp.clip(noisy, 0, 1), images),)


def make(config: "Config", steps_per_epoch: int, base: Method) -> Method:
    """Noise of `--noise-sigma`."""
    assert config.noise_sigma is not None
    return GaussianNoise(sparsity=base.sparsity, base=base, sigma=config.noise_sigma)
