"""Level and stiffness chosen for each image, by how noisy it is."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise
from isvs.flow import Flow, batch_entry_times
from isvs.noise import noise_level
from isvs.speckle import Speckle, checked, remove_speckle, remove_spots
from isvs.stiffness import relax


@dataclasses.dataclass(frozen=True)
class AutoLevel:
    """How ``isvs.smooth(images, "auto")`` chooses. The constants are fitted by ``python -m eval.cleaning fit-auto``.

    An edge is in the support if it enters by the time ``1 / (contrast * sigma)``, with `sigma` the noise of the image:
    a time is the inverse of a contrast, so that the rule says how far an edge must stand out from the noise, and is the
    same for small and large images. The level follows from it.

    Attributes:
      contrast: what stays in the support, as a multiple of the noise level.
      stiffness: of the ties in a noisy image.
      quiet: the noise level up to which an image is left alone. From here to twice as much the stiffness rises to its
        value, so that nothing jumps.
      quiet_grey: the same for images of one channel, whose texture cannot be told from noise.
      speckle: the rule that is applied first, or None.
      outlier: how far speckle stands out, at least, as a multiple of the noise level. In strong noise the rule's own
        contrast is met everywhere, by pixels that are not speckle.
      solver: finds the entry times. Whether an edge enters by some time can be told in coarser steps than when it does:
        measured on noisy photographs, those of `isvs.Flow()` gain nothing, and take four times as long.

    Example:
      >>> import jax.numpy as jnp
      >>> policy = AutoLevel(stiffness=2.0, quiet=0.01)
      >>> policy.choose(jnp.array([0.01, 0.015, 0.05]), channels=3)
      Array([0., 1., 2.], dtype=float32)
    """

    contrast: float = 1.2
    stiffness: float = 1.0
    quiet: float = 0.012
    quiet_grey: float = 0.044
    speckle: Speckle | None = Speckle()  # noqa: RUF009 (frozen)
    outlier: float = 4.0
    solver: Flow = Flow(ratio=1.25, horizon=100.0)  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        for name in ("contrast", "stiffness", "quiet", "quiet_grey", "outlier"):
            _checks.positive(name, getattr(self, name))
        if self.stiffness > _checks.STIFFEST:
            raise ValueError(
                f"stiffness must be at most {_checks.STIFFEST:g}, got {self.stiffness!r}"
            )
        checked(self.speckle)
        if not isinstance(self.solver, Flow):
            raise TypeError(f"solver must be isvs.Flow(...), got {self.solver!r}")

    def choose(self, sigma: jax.Array, channels: int) -> jax.Array:
        """The stiffness for a noise level, ``[...]`` to ``[...]``; zero leaves an image alone."""
        quiet = self.quiet if channels > 1 else self.quiet_grey
        return self.stiffness * jnp.clip(sigma / quiet - 1, 0, 1)


def clean(images: jax.Array, policy: AutoLevel) -> jax.Array:
    """Checked images, cleaned as the policy says."""
    images, sigma = despeckle(images, policy)
    choose = functools.partial(_ties, contrast=policy.contrast, solver=policy.solver)
    down, right = batchwise(choose, images, sigma, trailing=3, results=[2, 2])
    return relax(images, down, right, policy.choose(sigma, images.shape[-1]))


def despeckle(images: jax.Array, policy: AutoLevel) -> tuple[jax.Array, jax.Array]:
    """The images without speckle, and their noise level ``[...]``."""
    rule = policy.speckle
    if rule is not None:
        # Speckle hides how strong the noise is, and strong noise passes for speckle. What is left after the rule by
        # itself tells how strong the noise is at least, and that tells what is speckle.
        at_least = noise_level(remove_speckle(jax.lax.stop_gradient(images), rule))
        images = remove_spots(
            images, jnp.maximum(rule.contrast, policy.outlier * at_least), rule.area
        )
    return images, noise_level(images)


def _ties(images: jax.Array, sigma: jax.Array, *, contrast: float, solver: Flow) -> Any:
    """The edges outside the support, bool ``[..., H-1, W]`` and ``[..., H, W-1]``."""
    *batch, height, width, channels = images.shape
    times = batch_entry_times(images.reshape(math.prod(batch), height, width, channels), solver)
    last = 1 / (contrast * jax.lax.stop_gradient(sigma).reshape(-1, 1, 1))
    down, right = (edges > last for edges in times)
    return down.reshape(*batch, height - 1, width), right.reshape(*batch, height, width - 1)
