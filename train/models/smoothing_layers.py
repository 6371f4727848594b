"""Layers that smooth feature maps, with one interface and one place: after a network's stem.

`TotalVariation` is the baseline of Yeh et al. (2022), "Total variation optimization layers for
computer vision"; `ScaleSpaceSmoothing` is this project's smoothing in the same place.

Neither is cheap: a training step of a ResNet-8 (batch 64, 32x32, 16 channels, two CPU cores) takes
2.8 times as long with `TotalVariation` and 4.6 times with `ScaleSpaceSmoothing` as without
(`python -m eval.bench methods`).
"""

import math
from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

import isvs
from train.models.total_variation import prox_tv_2d

Form = Literal["smooth", "sharp"]

# What to make of the input x and the smoothed y.
_FORMS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "smooth": lambda x, y: y,
    "sharp": lambda x, y: 2 * x - y,
}

# A learned level lies between two of this many parts of [0, 1]; it divides the 255 levels of a
# scale space, so that every part ends at one of them.
_LEVEL_PARTS = 15


class TotalVariation(nnx.Module):
    """The proximal map of total variation on every feature map, with a learned strength.

    y = argmin 1/2 ||y - x||^2 + strength * TV(y) for each image and channel, strength =
    softplus(parameter) for each channel. The parameter is called `strength`, so weight decay,
    which is for kernels, leaves it alone.

    Args:
        features: channels of the input.
        form: "smooth" gives y; "sharp" gives 2 x - y, which strengthens what smoothing removes.
        initial_strength: above 0, in the units of the features. The default removes texture from
            normalised features and leaves their shapes.
        alternations: of solves along rows and along columns; see `prox_tv_2d`.

    Raises:
        ValueError: for an unknown form, or a number out of range.
    """

    def __init__(
        self,
        features: int,
        *,
        form: Form = "smooth",
        initial_strength: float = 0.1,
        alternations: int = 4,
    ) -> None:
        _check_count("features", features)
        _check_count("alternations", alternations)
        if form not in _FORMS:
            raise ValueError(f"form must be one of {get_args(Form)}, got {form!r}")
        if not 0 < initial_strength < math.inf:
            raise ValueError(f"initial_strength must be above 0 and finite, got {initial_strength}")
        self.features = features
        self.form = form
        self.alternations = alternations
        # The inverse of softplus, in the form that does not overflow.
        raw = initial_strength + math.log(-math.expm1(-initial_strength))
        self.strength = nnx.Param(jnp.full((features,), raw, jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Float [B, H, W, C] -> the same shape and dtype."""
        _check_input(x, self.features)
        planes = jnp.moveaxis(x, -1, 1)  # [B, C, H, W]
        strength = jax.nn.softplus(self.strength[...])  # [C]
        y = prox_tv_2d(planes, strength[None], alternations=self.alternations)
        return _FORMS[self.form](x, jnp.moveaxis(y, 1, -1))


class ScaleSpaceSmoothing(nnx.Module):
    """The inverse scale space smoothing of `isvs`, on feature maps.

    All channels of an image are one image with C channels: they share their regions, and every
    position becomes the mean of its region. The gradient with respect to the features is exact
    almost everywhere: the same means.

    Features are smoothed as they are, without standardising. The solver starts at the time that the
    steepest edge sets, so a factor for the whole image only moves time: on the stem of a trained
    ResNet-20, factors from 1e-6 to 1e6 gave the same support at every level, and an offset of 100
    moved at most 2 edges in 10,000. Factors between channels do matter (standardising each
    channel kept only 73 to 95 % of the support), so this layer belongs behind a normalisation.

    As a level moves, the output jumps whenever an edge enters and is constant in between: the
    derivative is zero almost everywhere and says nothing. A learned level therefore takes the two
    nearest levels of a grid, from one solve, and interpolates between them along a line. That output
    is continuous in the level and its gradient is exact, the difference of the two readings times
    the number of parts. At the points of the grid the slope changes, as a ReLU's does.

    Args:
        features: channels of the input.
        level: the fraction of neighbouring pairs that may differ, in [0, 1]: 0 is flat, 1 the input.
            Where it is learned, the initial one, and strictly between. It is static: to follow a
            schedule without compiling again, pass the level to each call.
        learned: whether the level is a parameter, sigmoid(`level_logit`), one for all channels.
        solver: the settings of the solver. A layer runs at every step of training, so by default its
            steps of time are longer than for images: a quarter of the time, and 96 to 99 % of the
            support of a fine solve (`isvs.Flow()`: 99 %).

    Raises:
        ValueError: for a number out of range.
    """

    def __init__(
        self,
        features: int,
        *,
        level: float = 0.6,
        learned: bool = False,
        solver: isvs.Flow = isvs.Flow(ratio=1.25),  # noqa: B008 (frozen)
    ) -> None:
        _check_count("features", features)
        if not 0 <= level <= 1:
            raise ValueError(f"level must lie in [0, 1], got {level}")
        self.features = features
        self.learned = learned
        self.level = level
        self.solver = solver
        if learned:
            if level in (0, 1):
                raise ValueError(f"a learned level must start strictly inside (0, 1), got {level}")
            logit = math.log(level) - math.log1p(-level)
            self.level_logit = nnx.Param(jnp.asarray(logit, jnp.float32))

    def __call__(self, x: jax.Array, *, level: jax.Array | float | None = None) -> jax.Array:
        """Float [B, H, W, C] -> the same shape and dtype.

        Args:
            x: the features.
            level: in [0, 1], a number or one for each image [B], instead of the layer's own; it
                may be traced.

        Raises:
            ValueError: for features of another shape or type, or a level beside a learned one.
        """
        _check_input(x, self.features)
        if self.learned and level is not None:
            raise ValueError("this layer learns its level; none can be given")
        space = isvs.encode(x, solver=self.solver)
        if self.learned:
            return _between_levels(space, jax.nn.sigmoid(self.level_logit[...]))
        return space.at(self.level if level is None else level)


def _between_levels(space: isvs.ScaleSpace, level: jax.Array) -> jax.Array:
    """The images at a level, on the line between its neighbours on the grid; continuous in it."""
    position = level * _LEVEL_PARTS
    below = jax.lax.stop_gradient(jnp.clip(jnp.floor(position), 0, _LEVEL_PARTS - 1))
    weight = position - below
    coarse, fine = (space.at((below + step) / _LEVEL_PARTS) for step in (0, 1))
    return coarse + weight.astype(fine.dtype) * (fine - coarse)


def _check_count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _check_input(x: jax.Array, features: int) -> None:
    if x.ndim != 4 or x.shape[-1] != features or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"expected floating features [B, H, W, {features}], got {x.shape=}, {x.dtype=}"
        )
