"""`cleaning`: a photograph with two kinds of noise, and what each preprocessing makes of it."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from matplotlib.figure import Figure

import isvs
from eval.bench_denoisers import psnr
from eval.cleaning.preprocessings import Smoothing, ours
from eval.corruptions.noise import gaussian_noise, impulse_noise
from eval.figures import base

_TITLES = {"paper": "level 0.6", "soft": "soft", "auto": "auto"}


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw a noisy picture, and what smoothing, soft ties and the automatic level make of it.

    Attributes:
        image: the picture file.
        out: where the figure goes; .png, .pdf or .svg.
        sigma: deviation of the Gaussian noise in the first row.
        impulses: share of pixels, in each channel, with impulse noise in the second row.
        max_side: larger pictures are scaled down until the longer side has so many pixels.
    """

    image: Annotated[Path, tyro.conf.Positional]
    out: Path = Path("figures/cleaning.png")
    sigma: float = 0.08
    impulses: float = 0.06
    max_side: int = 160


def draw_cleaning(image: np.ndarray, noisy: Mapping[str, np.ndarray]) -> Figure:
    """A row for each noisy picture: the image, the picture, and what becomes of it, with the PSNR of each.

    Args:
        image: [H, W, C] in [0, 1].
        noisy: the same with noise, by the name of the noise.
    """
    height, width, _ = image.shape
    columns = 2 + len(_TITLES)
    row = base.PAGE / columns * height / width + 0.25
    figure = Figure(figsize=(base.PAGE, row * len(noisy)), layout=base.close_layout())
    grid = figure.subplots(len(noisy), columns, squeeze=False)
    for axes, (kind, picture) in zip(grid, noisy.items(), strict=True):
        base.show(axes[0], image)
        axes[0].set_title("image")
        cleaned = {title: _clean(name, picture) for name, title in _TITLES.items()}
        for panel, (name, one) in zip(axes[1:], {kind: picture, **cleaned}.items(), strict=True):
            base.show(panel, one)
            panel.set_title(f"{name}, {psnr(one[None], image[None]):.1f} dB")
    return figure


def _clean(name: str, picture: np.ndarray) -> np.ndarray:
    # The picture is for an eye: the limit is there for networks.
    ways = {**ours(), "auto": Smoothing(isvs.AutoLevel(limit=math.inf))}
    return np.asarray(ways[name](jnp.asarray(picture)))


def run(options: Options) -> Path:
    """Reads the picture, adds noise, and draws."""
    base.check_format(options.out)
    if options.sigma < 0 or not 0 <= options.impulses <= 1:
        raise ValueError(
            "expected --sigma of 0 or more and --impulses from 0 to 1, "
            f"got {options.sigma:g} and {options.impulses:g}"
        )
    image = base.fractions(base.open_picture(options.image, options.max_side))
    key, pixels = jax.random.key(0), jnp.asarray(image)
    noisy = {
        f"Gaussian {options.sigma:g}": gaussian_noise(key, pixels, options.sigma),
        f"impulses {options.impulses:g}": impulse_noise(key, pixels, options.impulses),
    }
    pictures = {name: np.clip(np.asarray(one), 0, 1) for name, one in noisy.items()}
    return base.drawn(draw_cleaning, options.out, image, pictures)
