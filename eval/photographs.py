"""Photographs that need no download: crops of those that ship with scikit-image."""

import functools
from collections.abc import Callable

import numpy as np
import skimage.data
import skimage.transform

# Only photographs inside the wheel; other functions of `skimage.data` would fetch from the network. The rocket is left
# out: it is mostly bare sky, which takes the iteration several times as long as ordinary pictures do.
_SOURCES: tuple[Callable[[], np.ndarray], ...] = (
    skimage.data.astronaut,
    skimage.data.coffee,
    skimage.data.chelsea,
    lambda: skimage.data.stereo_motorcycle()[0],
)
# The smallest crop is this many times the size asked for: smaller ones are blurred, or show a thing's bare surface.
_SMALLEST_ZOOM = 3.0
# No larger than this part of a photograph's shorter side, so that crops differ even when they are large.
_LARGEST_PART = 0.9


def photographs(count: int, size: int, *, grey: bool = False, seed: int = 0) -> np.ndarray:
    """Square crops at random places and scales, resized with antialiasing.

    The same arguments always give the same images. Where a photograph is too small for the size asked for, its largest
    crop is enlarged.

    Args:
      count: how many.
      size: height and width in pixels.
      grey: one channel (luminance) and not three.
      seed: chooses places and scales.

    Returns:
      float32 ``[count, size, size, 3]`` (or 1) in [0, 1].
    """
    random = np.random.default_rng(seed)
    crops = [_crop(_load(i % len(_SOURCES)), size, random) for i in range(count)]
    images = np.stack(crops).astype(np.float32)
    if grey:
        images = images @ np.array([[0.2125], [0.7154], [0.0721]], np.float32)
    return np.clip(images, 0, 1)


@functools.cache
def _load(number: int) -> np.ndarray:
    """One photograph, float ``[H, W, 3]`` in [0, 1]."""
    photograph = _SOURCES[number]() / 255.0
    photograph.flags.writeable = False  # shared by all callers
    return photograph


def _crop(photograph: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    height, width, _ = photograph.shape
    largest = _LARGEST_PART * min(height, width)
    smallest = min(_SMALLEST_ZOOM * size, largest)
    # Scales are spread evenly on a logarithmic axis.
    side = round(float(np.exp(random.uniform(np.log(smallest), np.log(largest)))))
    top, left = random.integers(height - side + 1), random.integers(width - side + 1)
    crop = photograph[top : top + side, left : left + side]
    return skimage.transform.resize(crop, (size, size), anti_aliasing=side > size)
