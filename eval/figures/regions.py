"""`regions`: how a picture becomes regions, and regions become a picture."""

import dataclasses
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from matplotlib.figure import Figure

import isvs
from eval.figures import base


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw a picture, the levels at which its edges enter, its regions at a level, and their means.

    Attributes:
        image: the picture file.
        out: where the figure goes; .png, .pdf or .svg.
        level: the share of neighbouring pixel pairs that may differ.
        max_side: larger pictures are scaled down until the longer side has so many pixels.
    """

    image: Annotated[Path, tyro.conf.Positional]
    out: Path = Path("figures/regions.png")
    level: float = 0.15
    max_side: int = 160


def entry_map(space: isvs.ScaleSpace) -> np.ndarray:
    """For every pixel the lowest level, in [0, 1], at which one of its edges enters: [H, W]."""
    height, width = space.right.shape[0], space.down.shape[1]
    lowest = np.full((height, width), 255, np.uint8)
    down, right = np.asarray(space.down), np.asarray(space.right)
    for side in (lowest[1:], lowest[:-1]):
        np.minimum(side, down, out=side)
    for side in (lowest[:, 1:], lowest[:, :-1]):
        np.minimum(side, right, out=side)
    return lowest / 255


def draw_regions(space: isvs.ScaleSpace, level: float) -> Figure:
    """Four panels, from the image of the scale space to the same at a level.

    Args:
        space: of one image, [H, W, C].
        level: in [0, 1].
    """
    image, regions = np.asarray(space.images), np.asarray(space.regions(level))
    found, place = np.unique(regions, return_inverse=True)
    colours = np.random.default_rng(0).uniform(0.15, 1, (len(found), 3))
    height, width, _ = image.shape
    panels = 4
    size = (base.PAGE, base.PAGE / panels * height / width + 0.3)
    figure = Figure(figsize=size, layout=base.close_layout())
    first, second, third, fourth = figure.subplots(1, panels)
    base.show(first, image)
    first.set_title("image x")
    second.imshow(entry_map(space), cmap="magma_r", vmin=0, vmax=1)
    base.bare(second)
    second.set_title("entry levels k / 255 (dark: late)")
    base.show(third, colours[place.reshape(regions.shape)])
    third.set_title(f"{len(found):,} regions at level {level:g}")
    base.show(fourth, np.asarray(space.at(level)))
    fourth.set_title("their means M x")
    return figure


def run(options: Options) -> Path:
    """Reads and encodes the picture, and draws."""
    base.check_format(options.out)
    if not 0 <= options.level <= 1:
        raise ValueError(f"--level: expected a number from 0 to 1, got {options.level:g}")
    image = base.fractions(base.open_picture(options.image, options.max_side))
    return base.drawn(draw_regions, options.out, isvs.encode(image), options.level)
