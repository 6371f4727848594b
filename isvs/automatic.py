"""Level and stiffness chosen for each image, by how noisy it is."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from isvs import _checks
from isvs._sharding import batchwise
from isvs.colour import basis
from isvs.flow import Flow, batch_entry_times
from isvs.noise import noise_level
from isvs.speckle import Speckle, checked, remove_speckle, remove_spots
from isvs.stiffness import relax


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoLevel:
    """How ``isvs.smooth(images, "auto")`` chooses.

    The constants are fitted by ``python -m eval.cleaning fit-auto``, all but `limit`, which small images are within,
    the speckle rule's own and the solver.

    An edge is in the support if it enters by the time ``1 / (contrast * sigma)``, with `sigma` the noise of the image:
    a time is the inverse of a contrast, so that the rule says how far an edge must stand out from the noise, and is the
    same for small and large images. The level follows from it.

    Attributes:
      contrast: what stays in the support, as a multiple of the noise level.
      stiffness: of the ties in a noisy image, for what is seen in all channels alike: brightness.
      colour: how many times stiffer the differences between channels are tied. Noise is as large in them, while what a
        camera sees varies less.
      quiet: the noise level up to which an image is left alone. From here to twice as much the stiffness rises to its
        value, so that nothing jumps.
      quiet_grey: the same for images of one channel, whose texture cannot be told from noise.
      limit: the noise level times the side of the image (the square root of its pixels) up to which it is smoothed in
        full. From here to twice as much the stiffness falls to zero, and beyond the image comes back as it was, speckle
        included: networks for large images were measured to cope with strong noise better than with what is left of
        it. Infinite for an eye, or for decibels.
      speckle: the rule that is applied first, or None.
      outlier: how far speckle stands out, at least, as a multiple of the noise level, be it that of colour or that of
        brightness. In strong noise the rule's own contrast is met everywhere, by pixels that are not speckle.
      solver: finds the entry times. Whether an edge enters by some time can be told in coarser steps than when it does:
        measured on noisy photographs, those of `isvs.Flow()` gain nothing, and take four times as long.

    Example:
      >>> import jax.numpy as jnp
      >>> policy = AutoLevel(stiffness=2.0, quiet=0.01, limit=8.0)
      >>> policy.choose(jnp.array([0.01, 0.015, 0.05, 0.15]), (80, 80, 3))
      Array([0., 1., 2., 1.], dtype=float32)
    """

    contrast: float = 1.2
    stiffness: float = 1.0
    colour: float = 2.0
    quiet: float = 0.012
    quiet_grey: float = 0.044
    limit: float = 8.0
    speckle: Speckle | None = Speckle()  # noqa: RUF009 (frozen)
    outlier: float = 4.0
    solver: Flow = Flow(ratio=1.25, horizon=100.0)  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        for name in ("contrast", "stiffness", "colour", "quiet", "quiet_grey", "outlier"):
            _checks.positive(name, getattr(self, name))
        if self.limit != math.inf:
            _checks.positive("limit", self.limit)
        stiffest = self.stiffness * max(self.colour, 1)
        if stiffest > _checks.STIFFEST:
            raise ValueError(
                "stiffness, and that times colour, must be at most "
                f"{_checks.STIFFEST:g}, got {self.stiffness!r} and {self.colour!r}"
            )
        checked(self.speckle)
        if not isinstance(self.solver, Flow):
            raise TypeError(f"solver must be isvs.Flow(...), got {self.solver!r}")

    def choose(self, sigma: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The stiffness for a noise level, ``[...]`` to ``[...]``, in images ``(H, W, C)``; zero ties nothing.

        That of brightness; differences between channels are tied `colour` times as stiff.
        """
        quiet = self.quiet if shape[-1] > 1 else self.quiet_grey
        return self.stiffness * jnp.clip(sigma / quiet - 1, 0, 1) * self._within_limit(sigma, shape)

    def _within_limit(self, sigma: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """From 1 up to the limit to 0 at twice as much."""
        height, width, _ = shape
        return jnp.clip(2 - sigma * math.sqrt(height * width) / self.limit, 0, 1)


def clean(images: jax.Array, policy: AutoLevel) -> jax.Array:
    """Checked images, cleaned as the policy says."""
    spotless, sigma = despeckle(images, policy)
    hopeless = policy._within_limit(sigma, images.shape[-3:]) == 0
    return settle(jnp.where(hopeless[..., None, None, None], images, spotless), sigma, policy)


def settle(images: jax.Array, sigma: jax.Array, policy: AutoLevel) -> jax.Array:
    """Images with noise of a level ``[...]``, smoothed as the policy says; what it says of speckle is done already."""
    choose = functools.partial(_ties, contrast=policy.contrast, solver=policy.solver)
    down, right = batchwise(choose, images, sigma, trailing=3, results=[2, 2])
    stiffness = policy.choose(sigma, images.shape[-3:])
    tied = _tie_by_colour(images, down, right, stiffness, policy.colour)
    # Turned to brightness and colour and back, an image would not stay as it is to the bit.
    return jnp.where((stiffness > 0)[..., None, None, None], tied, images)


def _tie_by_colour(
    images: jax.Array, down: jax.Array, right: jax.Array, stiffness: jax.Array, colour: float
) -> jax.Array:
    """Ties brightness by springs of some stiffness, and colour by others that are `colour` times as stiff."""
    channels = images.shape[-1]
    if channels == 1:
        return relax(images, down, right, stiffness)
    dtype = jnp.promote_types(images.dtype, jnp.float32)
    rows = jnp.asarray(basis(channels), dtype)
    turned = jnp.einsum("...c,kc->...k", images.astype(dtype), rows, precision="highest")
    parts = [
        relax(turned[..., :1], down, right, stiffness),
        relax(turned[..., 1:], down, right, colour * stiffness),
    ]
    back = jnp.einsum("...k,kc->...c", jnp.concatenate(parts, -1), rows, precision="highest")
    return back.astype(images.dtype)


def despeckle(images: jax.Array, policy: AutoLevel) -> tuple[jax.Array, jax.Array]:
    """The images without speckle, and their noise level ``[...]``."""
    rule = policy.speckle
    if rule is not None:
        # Speckle hides how strong the noise is, and strong noise passes for speckle. What is left after the rule by
        # itself tells how strong the noise is at least, and that tells what is speckle. Brightness has its say too:
        # noise that all channels share is not seen in colour, and is no speckle either.
        left = remove_speckle(jax.lax.stop_gradient(images), rule)
        shared = noise_level(jnp.mean(left, axis=-1, keepdims=True))
        at_least = jnp.maximum(noise_level(left), shared)
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
