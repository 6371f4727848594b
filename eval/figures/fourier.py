"""`fourier`: which frequencies smoothing takes away, over a data set."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import isvs
from eval import frequency
from eval.figures import base
from train.data.sources import open_source

_BATCH = 256


@dataclasses.dataclass(frozen=True)
class Options:
    """Draw the mean Fourier amplitude of what smoothing takes from a data set's test images.

    Attributes:
        dataset: as for training: shapes, cifar10, cifar100, imagenet100, tfds:NAME, folder:DIR or
            npz:FILE.
        data_dir: where the data set's files lie.
        limit: how many test images.
        sparsity: level of smoothing.
        out: where the figure goes; .png, .pdf or .svg.
    """

    dataset: str = "cifar10"
    data_dir: Path | None = None
    limit: int = 1000
    sparsity: float = 0.6
    out: Path = Path("figures/fourier.png")


def mean_amplitudes(images: np.ndarray, sparsity: float) -> np.ndarray:
    """Mean amplitudes of images, of the same images smoothed, and of the difference.

    Args:
        images: uint8 [N, H, W, C].
        sparsity: level of smoothing.

    Returns:
        Three centred spectra [3, H, W], means over images and channels.
    """
    size = min(_BATCH, len(images))
    totals = np.zeros((3, *images.shape[1:3]))
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        # The last batch is filled up, so that one program serves all.
        filled = np.concatenate([batch, np.zeros_like(images[: size - len(batch)])])
        totals += np.asarray(_sums(filled, np.arange(size) < len(batch), sparsity))
    return totals / len(images)


@jax.jit
def _sums(pixels: jax.Array, mask: jax.Array, sparsity: jax.Array) -> jax.Array:
    """Amplitudes of the three versions of a batch, added up over the images that count."""
    plain = pixels.astype(jnp.float32) / 255  # [B, H, W, C]
    smoothed = isvs.smooth(plain, sparsity)
    versions = jnp.stack([plain, smoothed, plain - smoothed])  # [3, B, H, W, C]
    amplitudes = jax.vmap(frequency.amplitude)(versions)
    counted = mask.astype(jnp.float32)[None, :, None, None, None]
    return (amplitudes * counted).sum(1).mean(-1)


def draw_fourier(
    original: np.ndarray, smoothed: np.ndarray, removed: np.ndarray, sparsity: float
) -> Figure:
    """The share of amplitude that is removed, and mean amplitudes by distance from frequency zero.

    Args:
        original: mean amplitude of the images, [H, W], centred.
        smoothed: the same after smoothing.
        removed: the same of the difference between the two.
        sparsity: level of smoothing, for the labels.
    """
    height, width = removed.shape
    figure = Figure(figsize=(base.PAGE, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    columns = (-(width // 2) - 0.5, width - width // 2 - 0.5)
    rows = (-(height // 2) - 0.5, height - height // 2 - 0.5)
    floor = frequency.AMPLITUDE_FLOOR
    share = np.log10(np.maximum(removed, floor) / np.maximum(original, floor))
    # Smoothing keeps the mean: frequency zero, which has no share, shall not set the scale.
    share[height // 2, width // 2] = np.nan
    drawn = left.imshow(share, cmap="viridis", extent=(*columns, *rows), origin="lower")
    left.set_title("removed by smoothing")
    left.set_xlabel("horizontal frequency (cycles/image)")
    left.set_ylabel("vertical frequency")
    bar = figure.colorbar(drawn, ax=left, shrink=0.9)
    bar.set_label(r"$\log_{10}$ (removed / image)")
    for spectrum, name, colour, style in (
        (original, "image", base.COLOURS[0], "-"),
        (smoothed, f"smoothed, sparsity {sparsity:g}", base.COLOURS[1], "--"),
        (removed, "removed (image minus smoothed)", base.COLOURS[2], "-."),
    ):
        profile = np.asarray(frequency.radial_profile(jnp.asarray(spectrum, jnp.float32)))
        shown = np.maximum(profile[1:], floor)
        right.plot(np.arange(1, len(profile)), shown, style, color=colour, label=name)
    right.set_yscale("log")
    right.set_title("mean over rings")
    right.set_xlabel("distance from zero (cycles/image)")
    right.set_ylabel("mean amplitude")
    right.legend(frameon=False)
    return figure


def run(options: Options) -> Path:
    """Opens the data, smooths them, and draws."""
    base.check_format(options.out)
    dataset = open_source(
        options.dataset, data_dir=options.data_dir, limit_train=1, limit_test=options.limit
    )
    images, _ = base.test_images(dataset, options.limit)
    amplitudes = mean_amplitudes(images, options.sparsity)
    return base.drawn(draw_fourier, options.out, *amplitudes, options.sparsity)
