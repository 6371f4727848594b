"""Training methods by name; a new one is one file here and one line below."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from train.methods import (
    adversarial,
    augmix,
    awp,
    blur,
    fix,
    iterative,
    noise,
    options,
    pni,
    sat,
    tv_layer,
    vanilla,
)
from train.methods.base import Method, Spec

if TYPE_CHECKING:
    from train.config import Config

__all__ = ["NAMES", "Method", "Spec", "build", "options"]

# What the network is shown.
_VIEWS: dict[str, Callable[["Config", int], Method]] = {
    "vanilla": vanilla.make,
    "blur": blur.make,
    "fix": fix.make,
    "iterative": iterative.make,
}
# What else is done, over any of these views.
_OVER_VIEWS: dict[str, Callable[["Config", int, Method], Method]] = {
    "tv_layer": tv_layer.make,
    "pni": pni.make,
    "adversarial": adversarial.make,
    "sat": sat.make,
    "awp": awp.make,
    "augmix": augmix.make,
    "noise": noise.make,
}

NAMES = (*_VIEWS, *_OVER_VIEWS)


def build(config: "Config", steps_per_epoch: int) -> Method:
    """The method of a configuration.

    Args:
        config: filled by the recipe.
        steps_per_epoch: for schedules.

    Returns:
        The hooks.
    """
    if config.method not in NAMES:
        raise ValueError(f"unknown method {config.method!r}; choose one of {', '.join(NAMES)}")
    shown = options.shown(config)
    view = _VIEWS["vanilla" if shown == "raw" else shown](config, steps_per_epoch)
    if config.method in _VIEWS:
        return view
    return _OVER_VIEWS[config.method](config, steps_per_epoch, view)
