"""`vanilla`: the images as they are."""

from typing import TYPE_CHECKING

from train.methods.base import Method

if TYPE_CHECKING:
    from train.config import Config


def make(config: "Config", steps_per_epoch: int) -> Method:
    """The identity method."""
    assert config.sparsity is not None
    return Method(sparsity=config.sparsity)
