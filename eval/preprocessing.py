"""What may be done to test images before the network sees them, by name.

- `none`: nothing.
- `paper`: what the run's method does: smoothing at its level, or blurring for blur models.
- `soft`: smoothing at a lower level by ties that give, so that regions keep their shading; speckle
  is removed first.
- `auto`: speckle is removed, and an image is smoothed as much as its noise asks for.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

import isvs

if TYPE_CHECKING:
    from eval.subject import Subject

# Images [B, H, W, C] in [0, 1] -> the same shape; all of them can be differentiated.
Function = Callable[[jax.Array], jax.Array]

BARE, PAPER, SOFT, AUTO = "none", "paper", "soft", "auto"
_SOFT_SPARSITY, _SOFT_STIFFNESS, _SOFT_SPECKLE = 0.4, 5.0, isvs.Speckle()


def _unchanged(images: jax.Array) -> jax.Array:
    return images


def _soft(images: jax.Array) -> jax.Array:
    return isvs.smooth(images, _SOFT_SPARSITY, stiffness=_SOFT_STIFFNESS, speckle=_SOFT_SPECKLE)


def _automatic(images: jax.Array) -> jax.Array:
    return isvs.smooth(images, "auto")


_FUNCTIONS: dict[str, Callable[["Subject"], Function]] = {
    BARE: lambda subject: _unchanged,
    PAPER: lambda subject: subject.defend,
    SOFT: lambda subject: _soft,
    AUTO: lambda subject: _automatic,
}

NAMES = tuple(_FUNCTIONS)


def build(name: str, subject: "Subject") -> Function:
    """The function of that name for a network."""
    return _FUNCTIONS[name](subject)


def sparsity(name: str, subject: "Subject") -> float | None:
    """The level at which it smooths; None where there is none, or not one for all images."""
    return {PAPER: subject.sparsity, SOFT: _SOFT_SPARSITY}.get(name)


def definition(name: str) -> str | None:
    """The constants of the library that its numbers depend on; None where the run has all of them."""
    soft = f"level {_SOFT_SPARSITY}, stiffness {_SOFT_STIFFNESS}, {_SOFT_SPECKLE}"
    return {SOFT: soft, AUTO: repr(isvs.AutoLevel())}.get(name)
