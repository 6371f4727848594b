"""The constants of every corruption for severities 1 to 5: one table for CIFAR, one for ImageNet.

They are those of the generators of CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich, 2019). The two tables differ:
at 32x32 the constants of ImageNet leave little of a picture.
"""

from typing import Any

import numpy as np

Table = dict[str, tuple[Any, ...]]  # of five severities

_CIFAR: Table = {
    # Standard deviation.
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    # Photons that a white pixel counts.
    "shot_noise": (500, 250, 100, 75, 50),
    # Part of the values that turn black or white.
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    # Standard deviation, as a part of the value.
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    # Standard deviation in pixels.
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    # (standard deviation of the blur, largest shift, rounds of shifting)
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    # (radius of the disc, standard deviation of the blur that softens its edge)
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    # (radius, standard deviation along the line)
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    # Factors of the enlarged copies.
    "zoom_blur": tuple(np.arange(1, end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26)),
    # (amplitude, how much calmer the fog is at half the scale)
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    # (mean, standard deviation, zoom, threshold, radius, sigma of the motion blur, share of the image)
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    # (mean, standard deviation, sigma of the blur, threshold, opacity of water or blur of mud, mud?)
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    # Added to the value of HSV.
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    # Factor about the mean.
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    # (factor, summand) of the saturation of HSV.
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    # Quality.
    "jpeg_compression": (80, 65, 58, 50, 40),
    # Factor of the side.
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    # (amplitude, sigma of the displacement, range of the affine map), as parts of the image's side.
    "elastic_transform": (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
}

# The generator multiplies by 244 at 224 pixels, by its authors' word a slip without consequence.
_ELASTIC = 244 / 224

_IMAGENET: Table = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": (60, 25, 12, 5, 3),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": (1, 2, 3, 4, 6),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": tuple(
        np.arange(1, end, step)
        for end, step in ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
    ),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    "jpeg_compression": (25, 18, 15, 10, 7),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    "elastic_transform": tuple(
        (amplitude * _ELASTIC, sigma * _ELASTIC, affine * _ELASTIC)
        for amplitude, sigma, affine in (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        )
    ),
}

TABLES: dict[str, Table] = {"cifar": _CIFAR, "imagenet": _IMAGENET}
