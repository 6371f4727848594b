"""What all figures share: their contract, their look, and files that appear whole or not at all."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from isvs._pictures import Picture, PictureError, read_picture
from train.data.dataset import ArraySplit, Dataset
from train.data.pipeline import eval_stream

FORMATS = (".png", ".pdf", ".svg")

COLUMN = 3.4  # inches, a column of a two-column page
PAGE = 7.0  # inches, both columns

# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")

_LOOK: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "isvs",  # equal figures give equal files
    "image.interpolation": "nearest",
}
_DOTS_PER_INCH = 200


@dataclasses.dataclass(frozen=True)
class FigureCommand:
    """A figure that the command line can draw.

    Attributes:
        help: one line on what it shows.
        Options: frozen dataclass of its options.
        run: draws it with such options and returns the file.
        example: the words of a command line, the name first.
    """

    help: str
    Options: type[Any]
    run: Callable[[Any], Path]
    example: str


def drawn(draw: Callable[..., Figure], path: Path, *args: Any, **options: Any) -> Path:
    """Draws a figure in the common look and writes it in the format of the path's ending.

    Args:
        draw: returns the figure.
        path: ends in one of `FORMATS`; its folder is made if need be.
        *args: of `draw`.
        **options: of `draw`.

    Returns:
        The path.

    Raises:
        ValueError: for another ending.
    """
    check_format(path)
    # What a file says of its maker and time would make equal figures differ.
    silent = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    kind = path.suffix.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with matplotlib.rc_context(_LOOK), draft.open("wb") as file:
            figure = draw(*args, **options)
            figure.savefig(file, format=kind[1:], dpi=_DOTS_PER_INCH, metadata=silent[kind])
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def check_format(path: Path) -> None:
    """Raises unless figures can be written to such a file; to be asked before the work."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"--out: expected a file ending in {', '.join(FORMATS)}, got {path}")


def open_picture(path: Path, max_side: int) -> Picture:
    """A picture file, scaled down until its longer side has at most so many pixels.

    Raises:
        ValueError: if it cannot be read; the text names the file.
    """
    if max_side < 1:
        raise ValueError(f"--max-side: expected a positive number, got {max_side}")
    try:
        return read_picture(path, max_side)
    except PictureError as error:
        raise ValueError(f"{path}: {error}") from error


def fractions(picture: Picture) -> np.ndarray:
    """The pixels of a picture, float32 [H, W, C] in [0, 1]."""
    return picture.pixels.astype(np.float32) / np.iinfo(picture.pixels.dtype).max


def test_images(dataset: Dataset, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first test images, uint8 [N, H, W, C], and their labels, int32 [N]; at most `count`."""
    test = dataset.test
    count = min(count, len(test))
    if isinstance(test, ArraySplit):
        return test.images[:count], test.labels[:count]
    stream = eval_stream(test, image_size=dataset.image_shape[0], batch_size=count, num_workers=0)
    batch = next(iter(stream))
    return np.asarray(batch["image"]), np.asarray(batch["label"])


def as_float(images: np.ndarray) -> np.ndarray:
    """Pixels uint8 as float32 in [0, 1]."""
    return images.astype(np.float32) / 255


def show(axes: Any, image: np.ndarray) -> None:
    """Draws pixels in [0, 1], [H, W, C] with one channel or three, without axes."""
    image = np.clip(image, 0, 1)
    if image.shape[-1] == 1:
        axes.imshow(image[..., 0], cmap="gray", vmin=0, vmax=1)
    else:
        axes.imshow(image)
    bare(axes)


def close_layout() -> ConstrainedLayoutEngine:
    """For grids of pictures: hardly any space between them."""
    return ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.03, wspace=0.01, hspace=0.01)


def bare(axes: Any) -> None:
    """Takes ticks and frame away, and keeps titles and labels."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
