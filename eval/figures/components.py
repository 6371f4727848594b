"""`components`: low and high frequencies of a few images."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from eval import frequency
from eval.figures import base
from train.data.sources import open_source


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw the low and high frequencies of some test images.

    Attributes:
        dataset: as for training, see `figure fourier --help`.
        data_dir: where the data set's files lie.
        count: how many images.
        radius: frequencies nearer to zero than so many cycles per image are low.
        out: where the figure goes; .png, .pdf or .svg.
    """

    dataset: str = "cifar10"
    data_dir: Path | None = None
    count: int = 6
    radius: float = 6.0
    out: Path = Path("figures/components.png")


def draw_components(
    images: np.ndarray, low: np.ndarray, high: np.ndarray, names: Sequence[str], radius: float
) -> Figure:
    """Three rows: images, their low, and their high frequencies (around grey).

    Args:
        images: [N, H, W, C] in [0, 1].
        low: low frequencies, [N, H, W, C].
        high: high frequencies, [N, H, W, C]; zero is drawn as grey, and contrast is doubled.
        names: of the images' classes.
        radius: that divides low from high.
    """
    count = len(images)
    cell = min(base.PAGE / count, 1.3)
    figure = Figure(figsize=(cell * count + 0.25, 3 * cell + 0.25), layout=base.close_layout())
    grid = figure.subplots(3, count, squeeze=False)
    rows = (
        ("image", images),
        (f"low (r < {radius:g})", low),
        (f"high (r ≥ {radius:g}), x2", 0.5 + 2 * high),
    )
    for line, (title, pictures) in zip(grid, rows, strict=True):
        line[0].set_ylabel(title)
        for axes, picture in zip(line, pictures, strict=True):
            base.show(axes, picture)
    for axes, name in zip(grid[0], names, strict=True):
        axes.set_title(name)
    return figure


def run(options: Options) -> Path:
    """Opens the data, splits some images, and draws."""
    base.check_format(options.out)
    dataset = open_source(
        options.dataset, data_dir=options.data_dir, limit_train=1, limit_test=options.count
    )
    pixels, labels = base.test_images(dataset, options.count)
    images = base.as_float(pixels)
    low, high = map(np.asarray, frequency.split(jnp.asarray(images), options.radius))
    names = [dataset.class_names[label] for label in labels]
    return base.drawn(draw_components, options.out, images, low, high, names, options.radius)
