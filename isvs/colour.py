"""Brightness and colour: the channels of a pixel, turned so that noise is told from what a camera sees."""

import math

import numpy as np


def basis(channels: int) -> np.ndarray:
    """An orthonormal basis of the channels, rows ``[C, C]``: their mean, then differences between them.

    The first row is brightness, the others are colour: for RGB, R - G and R + G - 2B, scaled. Noise that is independent
    from channel to channel is as large in each of them; photographs vary mostly in brightness.
    """
    counts = np.arange(1, channels)
    differences = np.tril(np.ones((channels - 1, channels)))
    differences[counts - 1, counts] = -counts
    differences /= np.sqrt(counts * (counts + 1))[:, None]
    return np.concatenate([np.full((1, channels), 1 / math.sqrt(channels)), differences])
