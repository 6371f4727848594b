"""`fix`: images smoothed at one level (the paper's fixed training)."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from train.methods.base import Batch, Method, Predict, decode

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class Fix(Method):
    """Reads every image's scale space at `sparsity`."""

    train_codes = True

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """The smoothed images."""
        return decode(batch, self.sparsity), state

    def level(self, step: jax.Array) -> float:
        """The same at every step."""
        return self.sparsity


def make(config: "Config", steps_per_epoch: int) -> Method:
    """Fixed training at `--sparsity`."""
    assert config.sparsity is not None
    return Fix(sparsity=config.sparsity)
