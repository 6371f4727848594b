"""Corruptions on the host, one image at a time, with NumPy, SciPy, scikit-image and Pillow.

They are what the published generators do, and share no code with `eval.corruptions`: peers for the benchmark, and
oracles for the tests. Where the generators need OpenCV or ImageMagick, SciPy takes their place; spatter is missing.
"""

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.ndimage
import skimage.color
import skimage.util
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]
Floats = NDArray[np.floating[Any]]


def corrupt(rng: np.random.Generator, image: Bytes, name: str, constants: Any) -> Bytes:
    """Corrupts one image.

    Args:
        rng: source of chance.
        image: uint8 ``[H, W, 3]``.
        name: one of `PEERS`.
        constants: of the severity, from `eval.corruptions.constants.TABLES`.

    Returns:
        uint8 ``[H, W, 3]``.
    """
    return (np.clip(PEERS[name](rng, image / 255.0, constants), 0, 1) * 255).astype(np.uint8)


def _gaussian_noise(rng: np.random.Generator, x: Floats, deviation: float) -> Floats:
    return x + rng.normal(size=x.shape, scale=deviation)


def _shot_noise(rng: np.random.Generator, x: Floats, photons: float) -> Floats:
    return rng.poisson(x * photons) / photons


def _impulse_noise(rng: np.random.Generator, x: Floats, amount: float) -> Floats:
    return skimage.util.random_noise(x, mode="s&p", rng=rng, amount=amount)


def _speckle_noise(rng: np.random.Generator, x: Floats, deviation: float) -> Floats:
    return skimage.util.random_noise(x, mode="speckle", rng=rng, var=deviation**2)


def _gaussian_blur(rng: np.random.Generator, x: Floats, sigma: float) -> Floats:
    return scipy.ndimage.gaussian_filter(x, (sigma, sigma, 0), mode="nearest")


def _glass_blur(rng: np.random.Generator, x: Floats, constants: Any) -> Floats:
    sigma, reach, rounds = constants
    pixels = (_gaussian_blur(rng, x, sigma) * 255).astype(np.uint8)
    height, width, _ = pixels.shape
    for _ in range(rounds):
        shifts = rng.integers(-reach, reach, (height, width, 2))
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                down, right = shifts[h, w]
                pixels[h, w] = pixels[h + down, w + right]
    return _gaussian_blur(rng, pixels / 255.0, sigma)


def _defocus_blur(rng: np.random.Generator, x: Floats, constants: Any) -> Floats:
    radius, softening = constants
    side = 8 if radius <= 8 else int(radius)
    y, z = np.mgrid[-side : side + 1, -side : side + 1]
    kernel = (np.hypot(y, z) <= radius).astype(float)
    kernel /= kernel.sum()
    reach = 1 if radius <= 8 else 2
    line = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * softening**2))
    for axis in (0, 1):
        kernel = scipy.ndimage.correlate1d(kernel, line / line.sum(), axis, mode="mirror")
    return scipy.ndimage.correlate(x, kernel[..., None], mode="mirror")


def _motion_blur(rng: np.random.Generator, x: Floats, constants: Any) -> Floats:
    return shift_average(x, rng.uniform(-45, 45), *constants)


def shift_average(x: Floats, degrees: float, radius: float, sigma: float) -> Floats:
    """Motion blur of ``[H, W, C]`` as the weighted mean of shifted copies, rounded to bytes."""
    total, weights = np.zeros_like(x), 0.0
    for i in range(2 * math.ceil(radius) + 1):
        weight = math.exp(-(i**2) / (2 * sigma**2))
        down = math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
        right = math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
        total += weight * scipy.ndimage.shift(x, (-down, -right, 0), order=0, mode="nearest")
        weights += weight
    return np.round(total / weights * 255) / 255


def _zoom(x: Floats, factor: float) -> Floats:
    """The middle of a square ``[H, W, C]``, enlarged to the size of the whole."""
    side = len(x)
    part = math.ceil(side / factor)
    start = (side - part) // 2
    middle = x[start : start + part, start : start + part]
    large = scipy.ndimage.zoom(middle, (factor, factor, 1), order=1)
    trim = (len(large) - side) // 2
    return large[trim : trim + side, trim : trim + side]


def _zoom_blur(rng: np.random.Generator, x: Floats, factors: Any) -> Floats:
    return np.mean([x, *(_zoom(x, factor) for factor in factors)], axis=0)


def _fog(rng: np.random.Generator, x: Floats, constants: Any) -> Floats:
    amplitude, decay = constants
    side = 2 ** math.ceil(math.log2(max(x.shape)))
    cloud = _plasma(rng, side, decay)[: x.shape[0], : x.shape[1], None]
    return (x + amplitude * cloud) * x.max() / (x.max() + amplitude)


def _plasma(rng: np.random.Generator, side: int, decay: float) -> Floats:
    """Diamond-square noise in place: points that are `step` apart are done."""
    cloud, step, wibble = np.zeros((side, side)), side, 100.0
    while step > 1:
        half = step // 2
        for rows, columns, corners in (
            (half, half, ((-half, -half), (-half, half), (half, -half), (half, half))),
            (0, half, ((-half, 0), (half, 0), (0, -half), (0, half))),
            (half, 0, ((-half, 0), (half, 0), (0, -half), (0, half))),
        ):
            mean = np.mean([np.roll(cloud, shift, (0, 1)) for shift in corners], axis=0)
            chosen = mean[rows::step, columns::step]
            noise = wibble * rng.uniform(-wibble, wibble, chosen.shape)
            cloud[rows::step, columns::step] = chosen + noise
        step, wibble = half, wibble / decay
    return (cloud - cloud.min()) / np.ptp(cloud)


def _snow(rng: np.random.Generator, x: Floats, constants: Any) -> Floats:
    mean, deviation, zoom, threshold, radius, sigma, share = constants
    flakes = _zoom(rng.normal(mean, deviation, (*x.shape[:2], 1)), zoom)
    flakes[flakes < threshold] = 0
    flakes = (np.clip(flakes, 0, 1) * 255).astype(np.uint8) / 255
    flakes = shift_average(flakes, rng.uniform(-135, -45), radius, sigma)
    grey = x @ [[0.299], [0.587], [0.114]]
    x = share * x + (1 - share) * np.maximum(x, grey * 1.5 + 0.5)
    return x + flakes + np.rot90(flakes, 2)


def _brightness(rng: np.random.Generator, x: Floats, summand: float) -> Floats:
    hsv = skimage.color.rgb2hsv(x)
    hsv[..., 2] = np.clip(hsv[..., 2] + summand, 0, 1)
    return skimage.color.hsv2rgb(hsv)


def _contrast(rng: np.random.Generator, x: Floats, factor: float) -> Floats:
    mean = x.mean((0, 1))
    return mean + factor * (x - mean)


def _saturate(rng: np.random.Generator, x: Floats, constants: Any) -> Floats:
    factor, summand = constants
    hsv = skimage.color.rgb2hsv(x)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + summand, 0, 1)
    return skimage.color.hsv2rgb(hsv)


def _to_picture(x: Floats) -> Image.Image:
    return Image.fromarray(np.round(x * 255).astype(np.uint8))


def _jpeg_compression(rng: np.random.Generator, x: Floats, quality: int) -> Floats:
    file = io.BytesIO()
    _to_picture(x).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file)) / 255


def _pixelate(rng: np.random.Generator, x: Floats, factor: float) -> Floats:
    height, width, _ = x.shape
    small = _to_picture(x).resize((int(width * factor), int(height * factor)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX)) / 255


def _elastic_transform(rng: np.random.Generator, x: Floats, constants: Any) -> Floats:
    height, width, _ = x.shape
    side = min(height, width)
    amplitude, sigma, reach = (side * constant for constant in constants)
    third = side // 3
    middle = np.array([height // 2, width // 2])
    old = middle + third * np.array([[1, 1], [-1, 1], [-1, -1]])
    new = old + rng.uniform(-reach, reach, (3, 2))
    backwards = np.linalg.solve(np.c_[new, np.ones(3)], old)  # [3, 2]
    y, z = np.mgrid[:height, :width]
    places = np.stack([y, z, np.ones_like(y)], -1) @ backwards  # [H, W, 2]
    x = _interpolate(x, places[..., 0], places[..., 1], "mirror")
    shifts = [
        amplitude * scipy.ndimage.gaussian_filter(noise, sigma, mode="reflect", truncate=3)
        for noise in rng.uniform(-1, 1, (2, height, width))
    ]
    return _interpolate(x, y + shifts[0], z + shifts[1], "reflect")


def _interpolate(x: Floats, rows: Floats, columns: Floats, mode: str) -> Floats:
    planes = [
        scipy.ndimage.map_coordinates(x[..., c], (rows, columns), order=1, mode=mode)
        for c in range(x.shape[2])
    ]
    return np.stack(planes, -1)


PEERS: dict[str, Callable[[np.random.Generator, Floats, Any], Floats]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
    "speckle_noise": _speckle_noise,
    "gaussian_blur": _gaussian_blur,
    "glass_blur": _glass_blur,
    "defocus_blur": _defocus_blur,
    "motion_blur": _motion_blur,
    "zoom_blur": _zoom_blur,
    "fog": _fog,
    "snow": _snow,
    "brightness": _brightness,
    "contrast": _contrast,
    "saturate": _saturate,
    "jpeg_compression": _jpeg_compression,
    "pixelate": _pixelate,
    "elastic_transform": _elastic_transform,
}
