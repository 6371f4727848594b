"""`carry-over`: whether constants fitted at 32 pixels serve photographs of other sizes, and what fools the estimate.

Needs no data and no network: photographs that ship with scikit-image, and the peak signal-to-noise ratio.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import isvs
from eval.bench_denoisers import psnr
from eval.cleaning.options import CarryOverOptions
from eval.corruptions.jpeg import jpeg_compression
from eval.corruptions.noise import gaussian_noise, impulse_noise
from eval.photographs import photographs
from isvs.automatic import despeckle
from train.progress import Progress

_SIGMAS = (0.03, 0.06, 0.12)
_IMPULSES = (0.03, 0.1)
_HARD_SIDE, _HARD_SIGMA, _QUALITY = 224, 0.06, 75
_PIXELS = 1 << 20  # of all photographs of a size together

Corrupt = Callable[[jax.Array, jax.Array], jax.Array]


class Case(NamedTuple):
    """Photographs and what is done to them."""

    name: str
    side: int
    corrupt: Corrupt
    grey: bool = False


class Found(NamedTuple):
    """What one case gave; ratios in dB."""

    case: Case
    images: int
    estimate: float
    before: float
    after: float
    unlimited: float
    untouched: float

    def line(self) -> str:
        """A line of the table."""
        ratios = " | ".join(
            "identical" if ratio > _IDENTICAL else f"{ratio:.1f}"
            for ratio in (self.before, self.after, self.unlimited)
        )
        return (
            f"| {self.case.name} | {self.case.side} | {self.images} | {self.estimate:.3f} | {ratios} | "
            f"{self.untouched:.0%} |"
        )


_IDENTICAL = 119.0  # `psnr` does not go beyond 120
_HEAD = (
    "| what | side | images | estimate | before, dB | after, dB | without limit, dB | left alone |\n"
    "|---|---|---|---|---|---|---|---|"
)


def run(options: CarryOverOptions) -> str:
    """The table, as Markdown."""
    cases = [case for case in _cases() if case.side <= options.largest]
    with Progress("carry-over", len(cases), unit="cases") as progress:
        lines = []
        for case in cases:
            lines.append(_measure(case).line())
            progress.advance(1, case.name)
    return "\n".join([_HEAD, *lines])


def _cases() -> Iterator[Case]:
    for side in (32, 84, 224, 512):
        yield Case("clean", side, lambda key, image: image)
        for sigma in _SIGMAS:
            yield Case(f"Gaussian noise {sigma}", side, _with(gaussian_noise, sigma))
        for amount in _IMPULSES:
            yield Case(f"impulse noise {amount}", side, _with(impulse_noise, amount))
    gaussian = _with(gaussian_noise, _HARD_SIGMA)
    side = _HARD_SIDE
    yield Case("clean, grey", side, lambda key, image: image, grey=True)
    yield Case(f"Gaussian noise {_HARD_SIGMA}, grey", side, gaussian, grey=True)
    yield Case(f"Gaussian noise {_HARD_SIGMA}, the same in all channels", side, _in_all_channels)
    yield Case(f"Gaussian noise {_HARD_SIGMA}, then JPEG {_QUALITY}", side, _through_jpeg)
    yield Case("coarse grain: Gaussian noise of squares of 2 x 2 pixels", side, _coarse)


def _with(noise: Callable[[jax.Array, jax.Array, float], jax.Array], strength: float) -> Corrupt:
    return lambda key, image: noise(key, image, strength)


def _in_all_channels(key: jax.Array, image: jax.Array) -> jax.Array:
    return image + _HARD_SIGMA * jax.random.normal(key, (*image.shape[:2], 1))


def _through_jpeg(key: jax.Array, image: jax.Array) -> jax.Array:
    noisy = jnp.clip(gaussian_noise(key, image, _HARD_SIGMA), 0, 1)
    return jpeg_compression(key, noisy, _QUALITY)


def _coarse(key: jax.Array, image: jax.Array) -> jax.Array:
    height, width, channels = image.shape
    grain = jax.random.normal(key, (height // 2, width // 2, channels))
    return image + _HARD_SIGMA * jnp.repeat(jnp.repeat(grain, 2, axis=0), 2, axis=1)


def _measure(case: Case) -> Found:
    count = max(2, min(64, _PIXELS // case.side**2))
    clean = photographs(count, case.side, grey=case.grey)
    keys = jax.random.split(jax.random.key(0), count)
    noisy = jnp.clip(jax.jit(jax.vmap(case.corrupt))(keys, jnp.asarray(clean)), 0, 1)
    cleaned = _clean(noisy)
    return Found(
        case,
        count,
        float(jnp.median(_estimate(noisy))),
        psnr(np.asarray(noisy), clean),
        psnr(np.asarray(cleaned), clean),
        psnr(np.asarray(_clean_without_limit(noisy)), clean),
        float(jnp.mean(jnp.all(_clean_without_speckle_rule(noisy) == noisy, axis=(1, 2, 3)))),
    )


_clean = jax.jit(functools.partial(isvs.smooth, sparsity="auto"))
_clean_without_limit = jax.jit(
    functools.partial(isvs.smooth, sparsity=isvs.AutoLevel(limit=math.inf))
)
_estimate = jax.jit(lambda images: despeckle(images, isvs.AutoLevel())[1])
_clean_without_speckle_rule = jax.jit(
    functools.partial(isvs.smooth, sparsity=isvs.AutoLevel(speckle=None))
)
