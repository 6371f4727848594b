"""`fix`: images smoothed at one level (the paper's fixed training)."""

import dataclasses
from typing import TYPE_CHECKING

import jax

from train.methods.base import Method
from train.methods.smoothed import Smoothed, smoothing_options

if TYPE_CHECKING:
    from train.config import Config


@dataclasses.dataclass(frozen=True)
class Fix(Smoothed):
    """Reads every image's scale space at `sparsity`."""

    def level(self, step: jax.Array) -> float:
        """The same at every step."""
        return self.sparsity


def make(config: "Config", steps_per_epoch: int) -> Method:
    """Fixed training at `--sparsity`."""
    assert config.sparsity is not None
    return Fix(config.sparsity, **smoothing_options(config))
