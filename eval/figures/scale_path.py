"""`path`: an image along its scale space, from its largest shapes to itself."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from matplotlib.figure import Figure

from eval.figures import base
from isvs._pictures import at_levels


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw an image at several levels of smoothing.

    Attributes:
        image: the picture file.
        out: where the figure goes; .png, .pdf or .svg.
        levels: to draw, each the share of neighbouring pixel pairs that may differ.
        max_side: larger pictures are scaled down until the longer side has so many pixels.
    """

    image: Annotated[Path, tyro.conf.Positional]
    out: Path = Path("figures/path.png")
    levels: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    max_side: int = 400


def draw_path(images: Sequence[np.ndarray], levels: Sequence[float]) -> Figure:
    """Images side by side, each under its level.

    Args:
        images: each [H, W, C] in [0, 1], all of one shape.
        levels: of the images, in [0, 1].
    """
    height, width, _ = images[0].shape
    cell = base.PAGE / len(images)
    figure = Figure(figsize=(base.PAGE, cell * height / width + 0.25), layout=base.close_layout())
    grid = figure.subplots(1, len(images), squeeze=False)
    for axes, image, level in zip(grid[0], images, levels, strict=True):
        base.show(axes, image)
        axes.set_title("original" if level == 1 else f"sparsity {level:g}")
    return figure


def run(options: Options) -> Path:
    """Reads and smooths the picture, and draws."""
    base.check_format(options.out)
    if not options.levels or not all(0 <= level <= 1 for level in options.levels):
        raise ValueError(f"--levels: expected numbers from 0 to 1, got {options.levels}")
    picture = base.open_picture(options.image, options.max_side)
    images = [base.fractions(smoothed) for smoothed in at_levels(picture, options.levels)]
    return base.drawn(draw_path, options.out, images, options.levels)
