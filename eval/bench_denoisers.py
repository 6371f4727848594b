"""Smoothing as a denoiser, beside the total-variation denoisers of scikit-image."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import skimage.restoration

import isvs
from eval.bench_table import Row
from eval.timing import compile_seconds, in_turn

_SIGMA = 0.08
_LEVELS = (0.4, 0.5, 0.6, 0.7)
_Denoiser = Callable[[np.ndarray, float], np.ndarray]
_MICRO = 1e6


def _chambolle(image: np.ndarray, weight: float) -> np.ndarray:
    return skimage.restoration.denoise_tv_chambolle(image, weight, channel_axis=-1)


def _bregman(image: np.ndarray, weight: float) -> np.ndarray:
    return skimage.restoration.denoise_tv_bregman(image, weight, channel_axis=-1)


# In one of the two a larger weight smooths more, in the other one less.
_PEERS: dict[str, tuple[_Denoiser, tuple[float, ...]]] = {
    "denoise_tv_chambolle": (_chambolle, (0.03, 0.05, 0.08, 0.12)),
    "denoise_tv_bregman": (_bregman, (5.0, 8.0, 12.0, 20.0)),
}


def rows(clean: np.ndarray, rounds: int, tuning_images: int) -> list[Row]:
    """One row per peer, on images ``[B, H, W, C]`` with Gaussian noise.

    Args:
      clean: the images.
      rounds: repetitions.
      tuning_images: how many of them choose the peers' weights, and are denoised in a repetition.
    """
    noise = np.random.default_rng(0).normal(scale=_SIGMA, size=clean.shape)
    noisy = np.clip(clean + noise, 0, 1).astype(np.float32)
    batch = jnp.asarray(noisy)
    smooth = jax.jit(isvs.smooth)
    compiling = compile_seconds(lambda: smooth(batch, _LEVELS[0]))
    ours = {level: psnr(np.asarray(smooth(batch, level)), clean) for level in _LEVELS}
    level = max(ours, key=lambda level: ours[level])

    few, few_clean = noisy[:tuning_images], clean[:tuning_images]
    weights = {name: _best_weight(name, few, few_clean) for name in _PEERS}
    tasks: dict[str, Callable[[], Any]] = {
        name: functools.partial(_denoise, name, few, weight) for name, weight in weights.items()
    }
    seconds = in_turn({"ours": lambda: smooth(batch, level), **tasks}, rounds)
    by_level = ", ".join(f"{level}: {value:.1f}" for level, value in ours.items())
    note = (
        f"Mean PSNR of {len(clean)} images with Gaussian noise {_SIGMA} ({psnr(noisy, clean):.1f} dB). Ours by level: "
        f"{by_level} dB. Level and weights are the best of a few on these images. The peer takes images one by one, on "
        "one core."
    )
    return [
        Row(
            f"smooth({level}), {ours[level]:.1f} dB, vs {name}({weight:g}), "
            f"{psnr(_denoise(name, noisy, weight), clean):.1f} dB",
            "us/image",
            seconds["ours"] * (_MICRO / len(noisy)),
            seconds[name] * (_MICRO / len(few)),
            note=note,
            compile_seconds=compiling,
        )
        for name, weight in weights.items()
    ]


def _best_weight(name: str, noisy: np.ndarray, clean: np.ndarray) -> float:
    _, weights = _PEERS[name]
    return max(weights, key=lambda weight: psnr(_denoise(name, noisy, weight), clean))


def _denoise(name: str, images: np.ndarray, weight: float) -> np.ndarray:
    denoise, _ = _PEERS[name]
    return np.stack([denoise(image, weight) for image in images])


def psnr(images: np.ndarray, clean: np.ndarray) -> float:
    """The mean over images of the peak signal-to-noise ratio, in dB."""
    errors = np.mean((images.astype(np.float64) - clean) ** 2, axis=(1, 2, 3))
    return float(np.mean(-10 * np.log10(np.maximum(errors, 1e-12))))
