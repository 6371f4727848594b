"""Training methods by name; a new one is one file here and one line below."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from train.methods import blur, fix, iterative, vanilla
from train.methods.base import Method, Spec

if TYPE_CHECKING:
    from train.config import Config

__all__ = ["NAMES", "Method", "Spec", "build"]

_MAKERS: dict[str, Callable[["Config", int], Method]] = {
    "vanilla": vanilla.make,
    "blur": blur.make,
    "fix": fix.make,
    "iterative": iterative.make,
}

NAMES = tuple(_MAKERS)


def build(config: "Config", total_steps: int) -> Method:
    """The method of a configuration.

    Args:
        config: filled by the recipe.
        total_steps: of the whole training, for schedules.

    Returns:
        The hooks.
    """
    if config.method not in _MAKERS:
        raise ValueError(f"unknown method {config.method!r}; choose one of {', '.join(NAMES)}")
    return _MAKERS[config.method](config, total_steps)
