"""`tv_layer`: a smoothing layer inside the network (Yeh et al. 2022), or ours in the same place.

    tv, smooth:  y = argmin 1/2 |y - x|^2 + strength TV(y), for each channel;  tv, sharp:  2 x - y
    isvs:        y = the features x at a level of their scale space

The layer acts on the first features. In a ResNet it stands behind the stem: the first convolution,
its batch normalisation and ReLU (and the pooling of a 7x7 stem). Behind a normalisation one strength
means the same in every channel and network, and our layer, whose regions all channels share, weighs
them alike. In a ViT it acts on the grid of patches.
"""

import dataclasses
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from train.methods.base import Method
from train.methods.over_view import OverView
from train.models import Classifier
from train.models.smoothing_layers import ScaleSpaceSmoothing, TotalVariation

if TYPE_CHECKING:
    from train.config import Config


class Steady(nnx.Module):
    """A layer that does the same in training and in testing."""

    def __init__(self, layer: TotalVariation | ScaleSpaceSmoothing) -> None:
        self.layer = layer

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """[B, H, W, C] -> the same."""
        return self.layer(x)


class Rising(nnx.Module):
    """Our layer, at a level that every training pass raises by a little.

    The level is kept among the running averages, so that checkpoints and saved weights know it.
    """

    def __init__(self, features: int, *, start: float, end: float, steps: int) -> None:
        self.layer = ScaleSpaceSmoothing(features, level=end)
        self.end = end
        self.rise = (end - start) / max(steps - 1, 1)
        self.level = nnx.BatchStat(jnp.full((), start, jnp.float32))

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """[B, H, W, C] -> the same, at the present level."""
        level = self.level[...]
        if train:
            self.level[...] = jnp.minimum(level + self.rise, self.end)
        return self.layer(x, level=level)


@dataclasses.dataclass(frozen=True)
class TotalVariationLayer(OverView):
    """Puts the layer of Yeh et al. into the network.

    Attributes:
        form: "smooth" or "sharp".
        initial: strength before it is learned, for each channel.
    """

    form: Literal["smooth", "sharp"]
    initial: float

    def wrap(self, model: Classifier) -> Classifier:
        """The model with the layer on its first features."""
        features = model.first_features
        layer = TotalVariation(features, form=self.form, initial_strength=self.initial)
        model.smoothing.append(Steady(layer))
        return model


@dataclasses.dataclass(frozen=True)
class ScaleSpaceLayer(OverView):
    """Puts our smoothing into the network.

    Attributes:
        feature_level: fixed, or the first of a learned one, or the last of a scheduled one.
        mode: which of these.
        level_from: the first of a scheduled one.
        total_steps: of the training.
    """

    feature_level: float
    mode: Literal["fixed", "learned", "scheduled"]
    level_from: float | None
    total_steps: int

    def wrap(self, model: Classifier) -> Classifier:
        """The model with the layer on its first features."""
        features = model.first_features
        if self.mode == "scheduled":
            assert self.level_from is not None
            layer: nnx.Module = Rising(
                features, start=self.level_from, end=self.feature_level, steps=self.total_steps
            )
        else:
            learned = self.mode == "learned"
            layer = Steady(ScaleSpaceSmoothing(features, level=self.feature_level, learned=learned))
        model.smoothing.append(layer)
        return model


def make(config: "Config", steps_per_epoch: int, base: Method) -> Method:
    """The layer of `--layer`."""
    if config.layer == "tv":
        assert config.tv_form is not None and config.tv_initial is not None
        return TotalVariationLayer(base.sparsity, base, config.tv_form, config.tv_initial)
    assert config.layer_level is not None and config.layer_mode is not None
    assert config.epochs is not None
    return ScaleSpaceLayer(
        base.sparsity,
        base,
        feature_level=config.layer_level,
        mode=config.layer_mode,
        level_from=config.layer_level_from,
        total_steps=config.epochs * steps_per_epoch,
    )
