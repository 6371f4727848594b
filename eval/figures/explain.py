"""`explain`: what a network looks at, in images as they are, blurred and preprocessed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from eval import preprocessing
from eval.figures import base, panels


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw Grad-CAM and relevance maps of a network, on original, blurred and preprocessed images.

    Give --run, or --weights with --model and --dataset.

    Attributes:
        run: folder of a finished training.
        weights: .safetensors file, in place of a run.
        model: the network that the weights are for.
        dataset: whose test images to use; by default the run's.
        data_dir: where the data set's files lie.
        count: how many test images.
        first: number of the first one.
        sparsity: level of smoothing; by default the run's.
        preprocess: what else to do to the images, a row each: `paper`, `soft`, `auto`.
        blur_sigma: of the blurring, in pixels.
        blur_kernel: side of the blurring kernel in pixels, odd.
        out: where the figure goes; .png, .pdf or .svg.
    """

    run: Path | None = None
    weights: Path | None = None
    model: str | None = None
    dataset: str | None = None
    data_dir: Path | None = None
    count: int = 2
    first: int = 0
    sparsity: float | None = None
    preprocess: tuple[str, ...] = (preprocessing.PAPER,)
    blur_sigma: float = 2.0
    blur_kernel: int = 3
    out: Path = Path("figures/explain.png")


def draw_explanations(
    pictures: np.ndarray, names: Sequence[str], versions: Sequence[str]
) -> Figure:
    """Panels of several images, two images to a line.

    Args:
        pictures: uint8 [S, R, 3, H, W, 3], from `explanation_panels`.
        names: a title for each image.
        versions: a label for each of the R rows.
    """
    count, rows, columns, height, width, _ = pictures.shape
    across = min(count, 2)
    down = -(-count // across)
    cell = min(base.PAGE / (across * (columns + 0.3)), 1.15)
    size = (across * cell * (columns + 0.3), down * (rows * cell * height / width + 0.4))
    figure = Figure(figsize=size, layout=base.close_layout())
    parts = figure.subfigures(down, across, squeeze=False)
    for number, part in enumerate(parts.ravel()):
        if number >= count:
            break
        part.suptitle(names[number], fontsize=8)
        grid = part.subplots(rows, columns, squeeze=False)
        for row in range(rows):
            for column in range(columns):
                axes = grid[row, column]
                axes.imshow(pictures[number, row, column])
                base.bare(axes)
                if row == 0:
                    axes.set_title(panels.COLUMNS[column])
                if column == 0:
                    axes.set_ylabel(versions[row])
    return figure


def run(options: Options) -> Path:
    """Loads network and images, explains, and draws."""
    from eval import options as evaluation
    from eval.subject import open_subject

    base.check_format(options.out)
    if options.count < 1 or options.first < 0:
        raise ValueError(f"expected count above 0, first of 0 or more, got {options}")
    shared = ("run", "weights", "model", "dataset", "data_dir", "sparsity", "preprocess")
    limit = options.first + options.count
    subject = open_subject(
        evaluation.Options(
            **{name: getattr(options, name) for name in shared}, limit=limit
        ).filled()
    )
    pixels, labels = (part[options.first :] for part in base.test_images(subject.dataset, limit))
    if not len(pixels):
        raise ValueError(
            f"--first: expected a number below {len(subject.dataset.test)}, got {options.first}"
        )
    images = jnp.asarray(base.as_float(pixels))
    versions = panels.versions(
        subject, options.preprocess, images, options.blur_sigma, options.blur_kernel
    )
    pictures = panels.explanation_panels(
        subject.forward.graph,
        *subject.weights,
        jnp.asarray(labels),
        versions,
        resize=subject.forward.resize,
    )
    names = [subject.dataset.class_names[label] for label in labels]
    return base.drawn(draw_explanations, options.out, pictures, names, list(versions))
