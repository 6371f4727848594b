"""Denoisers of scikit-image and SciPy, image by image on the host; without JAX, so that processes start quickly."""

import concurrent.futures
import dataclasses
import functools
import math
import multiprocessing
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.ndimage
import skimage.restoration
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Setting = Mapping[str, float | str]

# Pieces of a batch for each process: few enough to cost nothing, enough that none waits long for the last.
_PIECES = 4


@dataclasses.dataclass(frozen=True)
class Peer:
    """A denoiser and the settings that are tried.

    Attributes:
        denoise: of one image, float ``[H, W, C]`` or, in grey, ``[H, W]``, and a setting by keywords.
        settings: from weak to strong.
    """

    denoise: Callable[..., Floats]
    settings: tuple[Setting, ...]


def _total_variation(image: Floats, weight: float) -> Floats:
    return skimage.restoration.denoise_tv_chambolle(
        image, weight, channel_axis=_channel_axis(image)
    )


def _non_local_means(image: Floats, h: float) -> Floats:
    """`h` in multiples of the estimated noise; patches as in scikit-image's own example."""
    sigma = _estimated_noise(image)
    if sigma == 0:
        return image
    return skimage.restoration.denoise_nl_means(
        image,
        patch_size=5,
        patch_distance=6,
        h=h * sigma,
        sigma=sigma,
        fast_mode=True,
        channel_axis=_channel_axis(image),
    )


def _wavelet(image: Floats, method: str, sigma: float) -> Floats:
    """`sigma` in multiples of the estimated noise."""
    return skimage.restoration.denoise_wavelet(
        image,
        sigma=sigma * _estimated_noise(image),
        method=method,
        convert2ycbcr=image.ndim == 3 and image.shape[-1] == 3,
        channel_axis=_channel_axis(image),
        rescale_sigma=True,
    )


def _median(image: Floats) -> Floats:
    return scipy.ndimage.median_filter(image, (3, 3, 1)[: image.ndim])


def _bilateral(image: Floats, sigma_color: float) -> Floats:
    return skimage.restoration.denoise_bilateral(
        image, sigma_color=sigma_color, sigma_spatial=1, channel_axis=_channel_axis(image)
    )


def _channel_axis(image: Floats) -> int | None:
    return -1 if image.ndim == 3 else None


def _estimated_noise(image: Floats) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # a black image has no coefficients to go by
        sigma = float(
            skimage.restoration.estimate_sigma(
                image, channel_axis=_channel_axis(image), average_sigmas=True
            )
        )
    return sigma if math.isfinite(sigma) else 0.0


def _each(name: str, *values: float, **fixed: str) -> tuple[Setting, ...]:
    return tuple({**fixed, name: value} for value in values)


PEERS: dict[str, Peer] = {
    "tv": Peer(_total_variation, _each("weight", 0.02, 0.03, 0.04, 0.05, 0.06, 0.08)),
    "nl_means": Peer(_non_local_means, _each("h", 0.3, 0.45, 0.6, 0.75, 0.9)),
    "wavelet": Peer(
        _wavelet,
        (
            *_each("sigma", 0.75, 1.0, 1.25, method="BayesShrink"),
            *_each("sigma", 0.1, 0.2, 0.3, method="VisuShrink"),
        ),
    ),
    "median": Peer(_median, ({},)),
    "bilateral": Peer(_bilateral, _each("sigma_color", 0.02, 0.03, 0.05, 0.07, 0.1)),
}


def denoise(name: str, setting: Setting, images: Floats) -> NDArray[np.float32]:
    """Denoises ``[B, H, W, C]`` one by one; what overshoots is cut to [0, 1], as a picture would be."""
    one = functools.partial(PEERS[name].denoise, **setting)
    pictures = images[..., 0] if images.shape[-1] == 1 else images
    cleaned = [np.clip(one(image), 0, 1).astype(np.float32) for image in pictures]
    return np.stack(cleaned).reshape(images.shape) if cleaned else np.zeros_like(images, np.float32)


class Pool:
    """A process per core, which denoise while this one does something else. A context manager.

    Processes are spawned: forking one that runs JAX's threads may lock up. They start with the first batch.
    """

    def __init__(self) -> None:
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        self._processes = allowed or os.cpu_count() or 1
        self._executor = concurrent.futures.ProcessPoolExecutor(
            self._processes, mp_context=multiprocessing.get_context("spawn")
        )

    def start(self, name: str, setting: Setting, images: Floats) -> Callable[[], Floats]:
        """Begins to denoise a batch, and returns a function that waits for it."""
        pieces = np.array_split(images, self._processes * _PIECES)
        futures = [
            self._executor.submit(denoise, name, setting, piece) for piece in pieces if len(piece)
        ]
        return lambda: np.concatenate([future.result() for future in futures])

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(cancel_futures=True)
