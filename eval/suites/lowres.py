"""`lowres`: test images shrunk and enlarged again, by the nearest pixel both times."""

import fractions
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from eval.suites.base import Cells, Judge, Task, columns, image_keys, no_summary, pixels

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Subject

summarise = no_summary
_SUITE = "lowres"
# The paper's.
_SMALL, _LARGE = ("1/4", "1/2"), ("1/7", "1/4")
_SMALL_IMAGE = 64


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """One pass for every scale."""
    small = subject.dataset.image_shape[0] <= _SMALL_IMAGE
    for name in options.scales or (_SMALL if small else _LARGE):
        cells = columns(subject, options, _SUITE, name)
        shrink = jax.jit(functools.partial(low_resolution, scale=parse_scale(name)))

        def measure(
            batch: "Batch", wanted: Cells, shrink: jax.stages.Wrapped = shrink
        ) -> dict[str, jax.Array]:
            keys = image_keys(options.seed, _SUITE, batch["index"])
            return judge.each(wanted, keys, shrink(pixels(batch["image"])), batch["label"])

        yield Task(cells, subject.dataset.test, measure)


def parse_scale(text: str) -> fractions.Fraction:
    """A scale such as 1/4.

    Raises:
        ValueError: unless it lies in (0, 1].
    """
    try:
        scale = fractions.Fraction(text)
    except (ValueError, ZeroDivisionError):
        scale = fractions.Fraction(0)
    if not 0 < scale <= 1:
        raise ValueError(f"--scales: expected a fraction in (0, 1] such as 1/4, got {text!r}")
    return scale


def low_resolution(images: jax.Array, scale: fractions.Fraction) -> jax.Array:
    """Shrinks images to a fraction of their side, and brings them back to their size.

    Pixel i of a side of m comes from pixel floor(i n / m) of a side of n, both ways.

    Args:
        images: [B, H, W, C].
        scale: in (0, 1].

    Returns:
        [B, H, W, C].
    """
    for axis in (1, 2):
        size = images.shape[axis]
        fewer = max(int(size * scale), 1)
        down = jnp.arange(fewer) * size // fewer
        up = jnp.arange(size) * fewer // size
        images = jnp.take(images, down[up], axis=axis)
    return images
