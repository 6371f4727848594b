"""Crops of decoded pictures on the host, where each picture has its own size."""

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from train.data.dataset import ByteArray, Record

SCALE = (0.08, 1.0)  # part of the picture's area that a crop covers
RATIO = (3 / 4, 4 / 3)  # width to height
_TRIES = 10
_SHORT_SIDE = 256 / 224  # of the whole picture, for a crop of side one

Box = tuple[int, int, int, int]  # left, top, right, bottom


@dataclass(frozen=True)
class RandomResizedCrop:
    """Training crop: a random part of random shape, brought to one size and perhaps flipped.

    Attributes:
        size: side of the result.
        flip: whether to mirror half of the pictures.
    """

    size: int
    flip: bool = True

    def __call__(self, record: Record, rng: np.random.Generator) -> Record:
        """Crops the record's picture; all chance comes from `rng`."""
        height, width = record["image"].shape[:2]
        box = random_box(rng, height, width)
        flip = self.flip and rng.random() < 0.5
        picture = Image.fromarray(record["image"])
        # reducing_gap halves the cost for large crops, and is exact enough at 2 (Pillow's advice).
        picture = picture.resize(
            (self.size, self.size), Image.Resampling.BILINEAR, box=box, reducing_gap=2.0
        )
        image: ByteArray = np.asarray(picture)  # [size, size, 3]
        return {**record, "image": image[:, ::-1] if flip else image}


@dataclass(frozen=True)
class CentreCrop:
    """Test crop: short side 256, then the central 224; other sizes in the same proportion.

    Attributes:
        size: side of the result.
    """

    size: int

    def __call__(self, record: Record) -> Record:
        """Resizes and crops the record's picture."""
        height, width = record["image"].shape[:2]
        scale = round(self.size * _SHORT_SIDE) / min(height, width)
        resized = max(round(width * scale), self.size), max(round(height * scale), self.size)
        picture = Image.fromarray(record["image"]).resize(resized, Image.Resampling.BILINEAR)
        left, top = (resized[0] - self.size) // 2, (resized[1] - self.size) // 2
        picture = picture.crop((left, top, left + self.size, top + self.size))
        return {**record, "image": np.asarray(picture)}


def random_box(rng: np.random.Generator, height: int, width: int) -> Box:
    """A box of random area (8 to 100 %) and shape (3:4 to 4:3) inside a picture.

    After ten tries that do not fit, the largest central box of an allowed shape.

    Args:
        rng: source of chance.
        height: of the picture.
        width: of the picture.

    Returns:
        The box: left, top, right, bottom.
    """
    for _ in range(_TRIES):
        area = rng.uniform(*SCALE) * height * width
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * RATIO[1])))
    h = min(height, max(1, round(width / RATIO[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
