"""`pni`: parametric noise injection (He et al. 2019): random weights, as random as training wants.

w + a eta,  eta ~ N(0, std(w)^2) drawn in every forward pass, a learned
loss = CE(f(x), y) / 2 + CE(f(x + d), y) / 2
"""

import dataclasses
from typing import TYPE_CHECKING

import jax

from train.methods.adversarial import Attacked, attack_options
from train.methods.base import Batch, Method, Predict, Views
from train.models import Classifier
from train.models.noise import Granularity, make_noisy

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class ParametricNoise(Attacked):
    """Trains on clean and attacked images, half and half, with noise on all kernels.

    The noise stays in testing. Both views are in one forward pass and so share a draw, and all
    steps of an attack share another.

    Attributes:
        granularity: how many weights share an amplitude.
    """

    granularity: Granularity
    random = True

    def wrap(self, model: Classifier) -> Classifier:
        """The model with amplitudes beside its kernels."""
        make_noisy(model, self.granularity)
        return model

    def views(
        self, key: jax.Array, step: jax.Array, images: jax.Array, batch: Batch, predict: Predict
    ) -> Views:
        """Clean images and attacked ones."""
        attacked = self.worst(key, step, images, batch, predict)
        return self.seen(step, images), self.seen(step, attacked)


def make(config: "Config", steps_per_epoch: int, base: Method) -> Method:
    """Noise injection with amplitudes by `--pni-granularity`."""
    assert config.pni_granularity is not None
    return ParametricNoise(**attack_options(config, base), granularity=config.pni_granularity)
