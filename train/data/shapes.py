"""`shapes`: a small data set that the program draws itself, from a seed.

Ten classes are told apart by their outline alone, which is the large scale of the picture. All
else is drawn before the class is known and is the same in distribution for all classes: colours,
texture of figure and ground, clutter, lighting, noise, and also the figure's position, rotation,
stretch and area. Removing the small scale therefore loses nothing that a classifier should use.
The recipe in `train/presets.py` says what a ResNet-8 makes of them; `draw_sheet` shows what they
look like.
"""

import math
from pathlib import Path

import numpy as np
from PIL import Image

from train.data.dataset import ArraySplit, ByteArray, Dataset, FloatArray, IntArray, first
from train.data.outlines import OUTLINES, unit_area

SIDE = 32
NUM_TRAIN = 10_000
NUM_TEST = 2_000
CLASS_NAMES = tuple(OUTLINES)

# Pictures are drawn in chunks that stay in the processor's cache; each chunk has its own stream
# of random numbers, so a limited set is the beginning of the full one.
_CHUNK = 100
_STREAMS = {"train": 0, "test": 1}

_AREA = (0.15, 0.30)  # of the picture that the figure covers
_STRETCH = 1.2  # greatest ratio of the figure's two axes to the mean one
_TURN = np.pi / 7  # greatest rotation
_MIN_CONTRAST = 0.50  # distance of figure and ground in RGB
_CLUTTER = 6  # strokes and specks over each picture
_STROKE_LENGTH = 6.0  # at most, in pixels
_STROKE_WIDTH = (0.8, 2.2)
_TEXTURE = (0.0, 0.18)  # amplitude
_WAVELENGTH = (2.2, 5.0)  # of stripes and checks, in pixels: small scale
_NOISE = (0.01, 0.05)  # standard deviation
_LIGHTING = 0.35  # change of brightness across the picture


def draw(labels: IntArray, rng: np.random.Generator) -> ByteArray:
    """Draws one picture for each label.

    The labels touch nothing but the outline: the same generator state with other labels gives
    the same pictures with other figures in the same places.

    Args:
        labels: int32 [N], from 0 to 9.
        rng: source of all that is not the class.

    Returns:
        uint8 [N, 32, 32, 3].
    """
    n = len(labels)
    axis = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    y, x = axis[:, None], axis[None, :]  # pixels from the centre
    ground_colour, figure_colour = _two_colours(rng, n)
    ground = _textured(rng, ground_colour, x, y)
    figure = _textured(rng, figure_colour, x, y)
    coverage = _figures(rng, labels, x, y)[..., None]  # [N, H, W, 1]
    pictures = ground + coverage * (figure - ground)  # [N, H, W, 3]
    _add_clutter(rng, pictures)
    _add_lighting(rng, pictures, x, y)
    sigma = _uniform(rng, _NOISE, (n, 1, 1, 1))
    pictures += sigma * rng.standard_normal(pictures.shape, dtype=np.float32)
    np.clip(pictures, 0.0, 1.0, out=pictures)
    return (pictures * 255.0 + 0.5).astype(np.uint8)


def _uniform(
    rng: np.random.Generator, bounds: tuple[float, float], shape: tuple[int, ...]
) -> FloatArray:
    low, high = bounds
    return low + (high - low) * rng.random(shape, dtype=np.float32)


def _two_colours(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """Two colours [N, 3] for each picture, exchangeable, at least `_MIN_CONTRAST` apart."""
    first_colour = _uniform(rng, (0.1, 0.9), (n, 3))
    other = _uniform(rng, (0.1, 0.9), (n, 8, 3))  # eight tries
    distance = np.linalg.norm(other - first_colour[:, None], axis=-1)  # [N, 8]
    far_enough = np.argmax(distance >= _MIN_CONTRAST, axis=1)  # the first such try
    other = other[np.arange(n), far_enough]  # [N, 3]
    swap = rng.random((n, 1)) < 0.5
    return np.where(swap, other, first_colour), np.where(swap, first_colour, other)


def _textured(
    rng: np.random.Generator, colour: FloatArray, x: FloatArray, y: FloatArray
) -> FloatArray:
    """A surface [N, H, W, 3] of stripes or checks around a colour."""
    n = len(colour)
    angle = _uniform(rng, (0.0, np.pi), (n, 1, 1))
    frequency = 2 * np.pi / _uniform(rng, _WAVELENGTH, (n, 1, 1))
    phase = _uniform(rng, (0.0, 2 * np.pi), (2, n, 1, 1))
    u, v = frequency * np.cos(angle), frequency * np.sin(angle)
    wave = np.sin(u * x + v * y + phase[0])  # [N, H, W]
    checked = np.flatnonzero(rng.random(n) < 0.5)
    wave[checked] *= np.sin(u[checked] * y - v[checked] * x + phase[1, checked])
    tint = rng.standard_normal((n, 1, 1, 3), dtype=np.float32)
    tint /= np.linalg.norm(tint, axis=-1, keepdims=True) + 1e-6
    tint *= _uniform(rng, _TEXTURE, (n, 1, 1, 1))
    return colour[:, None, None, :] + tint * wave[..., None]


def _figures(
    rng: np.random.Generator, labels: IntArray, x: FloatArray, y: FloatArray
) -> FloatArray:
    """How much of each pixel the figure covers, [N, H, W], from 0 to 1."""
    n = len(labels)
    area = _uniform(rng, _AREA, (n, 1, 1)) * SIDE**2
    angle = _uniform(rng, (-_TURN, _TURN), (n, 1, 1))
    stretch = np.exp(_uniform(rng, (-np.log(_STRETCH), np.log(_STRETCH)), (n, 1, 1)))
    # Large figures keep near the centre, so that all of them stay almost whole in the picture.
    room = SIDE / 2 - 1.1 * np.sqrt(area / 2.0)
    centre = _uniform(rng, (-1.0, 1.0), (2, n, 1, 1)) * np.maximum(room, 0.0)
    cos, sin = np.cos(angle), np.sin(angle)
    dx, dy = x - centre[0], y - centre[1]  # [N, H, W]
    along, across = cos * dx + sin * dy, cos * dy - sin * dx
    coverage = np.empty(along.shape, np.float32)
    for label, (name, outline) in enumerate(OUTLINES.items()):
        rows = np.flatnonzero(labels == label)
        scale = np.sqrt(area[rows] / unit_area(name))  # pixels for one unit
        unit_x = along[rows] / (scale * stretch[rows])
        unit_y = across[rows] * (stretch[rows] / scale)
        coverage[rows] = np.clip(0.5 - scale * outline(unit_x, unit_y), 0.0, 1.0)
    return coverage


def _add_clutter(rng: np.random.Generator, pictures: FloatArray) -> None:
    """Lays short strokes and specks of any colour over the pictures, in place."""
    n = len(pictures)
    reach = math.ceil(_STROKE_LENGTH / 2 + _STROKE_WIDTH[1] / 2 + 0.5)
    offsets = np.arange(-reach, reach + 1)  # only these pixels around a stroke can change
    for _ in range(_CLUTTER):
        at_x, at_y = _uniform(rng, (0.0, SIDE - 1.0), (2, n, 1, 1))
        angle = _uniform(rng, (0.0, np.pi), (n, 1, 1))
        half_length = _uniform(rng, (0.0, _STROKE_LENGTH / 2), (n, 1, 1))
        half_width = _uniform(rng, _STROKE_WIDTH, (n, 1, 1)) / 2
        colour = _uniform(rng, (0.0, 1.0), (n, 1, 1, 3))
        # At the border the same pixel may come twice, both times with the same result.
        rows = np.clip(np.rint(at_y).astype(int) + offsets[:, None], 0, SIDE - 1)  # [N, P, 1]
        columns = np.clip(np.rint(at_x).astype(int) + offsets[None, :], 0, SIDE - 1)  # [N, 1, P]
        dx, dy = columns.astype(np.float32) - at_x, rows.astype(np.float32) - at_y
        cos, sin = np.cos(angle), np.sin(angle)
        along = np.maximum(np.abs(cos * dx + sin * dy) - half_length, 0.0)  # [N, P, P]
        across = cos * dy - sin * dx
        distance = np.sqrt(along * along + across * across) - half_width
        coverage = np.clip(0.5 - distance, 0.0, 1.0)[..., None]
        patch = np.arange(n)[:, None, None], rows, columns
        under = pictures[patch]  # [N, P, P, 3]
        pictures[patch] = under + coverage * (colour - under)


def _add_lighting(
    rng: np.random.Generator, pictures: FloatArray, x: FloatArray, y: FloatArray
) -> None:
    """Multiplies each picture by a ramp of brightness, in place."""
    n = len(pictures)
    angle = _uniform(rng, (0.0, 2 * np.pi), (n, 1, 1))
    slope = _uniform(rng, (0.0, _LIGHTING / SIDE), (n, 1, 1))
    ramp = 1.0 + slope * (np.cos(angle) * x + np.sin(angle) * y)  # [N, H, W]
    pictures *= ramp[..., None]


def draw_split(split: str, count: int, seed: int) -> ArraySplit:
    """Draws the first `count` pictures of a split.

    Args:
        split: "train" or "test": two streams of random numbers that never meet.
        count: how many pictures.
        seed: not negative; the same seed gives the same bytes.

    Returns:
        The pictures and their labels; each chunk of 100 holds 10 of each class.
    """
    images, labels = [], []
    for chunk in range(-(-count // _CHUNK)):
        sequence = np.random.SeedSequence([seed, _STREAMS[split], chunk])
        label_seed, picture_seed = sequence.spawn(2)
        balanced = np.arange(_CHUNK, dtype=np.int32) % len(CLASS_NAMES)
        labels.append(np.random.default_rng(label_seed).permutation(balanced))
        images.append(draw(labels[-1], np.random.default_rng(picture_seed)))
    return first(ArraySplit(np.concatenate(images), np.concatenate(labels)), count)


def open_shapes(seed: int, limit_train: int | None, limit_test: int | None) -> Dataset:
    """The drawn data set: 10,000 pictures to learn from and 2,000 to measure on."""
    return Dataset(
        name="shapes",
        image_shape=(SIDE, SIDE, 3),
        class_names=CLASS_NAMES,
        train=draw_split("train", min(limit_train or NUM_TRAIN, NUM_TRAIN), seed),
        test=draw_split("test", min(limit_test or NUM_TEST, NUM_TEST), seed),
    )


def draw_sheet(path: str | Path, *, seed: int = 0, rows: int = 8, zoom: int = 3) -> None:
    """Writes a contact sheet: one column for each class, `rows` pictures of each.

    Args:
        path: picture file to write; its suffix names the format.
        seed: of the data set.
        rows: pictures of each class.
        zoom: pixels of the sheet for one pixel of a picture.
    """
    classes = len(CLASS_NAMES)
    split = draw_split("test", NUM_TEST, seed)
    gap = 2
    cell = SIDE * zoom + gap
    sheet = np.full((rows * cell + gap, classes * cell + gap, 3), 255, np.uint8)
    for column in range(classes):
        chosen = split.images[split.labels == column][:rows]
        for row, picture in enumerate(chosen):
            large = picture.repeat(zoom, axis=0).repeat(zoom, axis=1)
            top, left = gap + row * cell, gap + column * cell
            sheet[top : top + SIDE * zoom, left : left + SIDE * zoom] = large
    Image.fromarray(sheet).save(path)
