"""Explanations as pictures: heat over an image, relevance in a diverging map. Needs no plotting."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from eval import preprocessing
from eval.explain import grad_cam, relevance
from eval.report import wording
from train import models
from train.methods.blur import gaussian_blur

if TYPE_CHECKING:
    from eval.subject import Subject

COLUMNS = ("image", "Grad-CAM", "LRP")

# Colours at even steps, between which is interpolated. Dark blue to yellow, light rising all along;
# and blue through white to red. The colour-blind can read both.
_HEAT = ((13, 8, 135), (126, 3, 168), (204, 71, 120), (248, 149, 64), (240, 249, 33))
_DIVERGING = (
    *((5, 48, 97), (67, 147, 195), (209, 229, 240), (247, 247, 247)),
    *((253, 219, 199), (214, 96, 77), (103, 0, 31)),
)
_OPACITY = 0.75  # of the hottest place; cold places let the image through
_SATURATED = 99.5  # percentile of |relevance| that gets the strongest colour


def versions(
    subject: "Subject",
    names: Iterable[str],
    images: jax.Array,
    blur_sigma: float = 2.0,
    blur_kernel: int = 3,
) -> dict[str, jax.Array]:
    """Images as they are, blurred, and as each preprocessing makes them, by words for a reader.

    Args:
        subject: the network.
        names: of the preprocessings.
        images: float [S, H, W, C] in [0, 1].
        blur_sigma: of the blurring in pixels; the default is the paper's for CIFAR.
        blur_kernel: its side in pixels, odd.
    """
    found = {"original": images}
    blurs = subject.sparsity is None  # by itself: a second blur would show nothing new
    if not blurs:
        found["blurred"] = jax.jit(gaussian_blur, static_argnums=(1, 2))(
            images, blur_sigma, blur_kernel
        )
    for name in names:
        if name != preprocessing.BARE:
            words = wording.preprocess(name)
            words = "blurred (paper)" if blurs and name == preprocessing.PAPER else words
            found[words] = jax.jit(preprocessing.build(name, subject))(images)
    return found


def explanation_panels(
    graph: nnx.GraphDef[models.Classifier],
    params: nnx.State,
    stats: nnx.State,
    labels: jax.Array,
    versions: Mapping[str, jax.Array],
    *,
    resize: int | None = None,
) -> np.ndarray:
    """What a network looks at in several versions of the same images.

    Args:
        graph: from `nnx.split(model, nnx.Param, nnx.BatchStat)`.
        params: of the model.
        stats: of the model.
        labels: the class to explain for each image, int [S].
        versions: R of them by name, each float [S, H, W, C] in [0, 1].
        resize: side to which the network wants its images brought first.

    Returns:
        Pictures, uint8 [S, R, 3, H, W, 3]: a row for each version; columns image, Grad-CAM over
        the image, relevance (red for the class, blue against it). Relevance is scaled by image and
        row.
    """
    explain = jax.jit(partial(_explain, graph, resize=resize))
    rows = []
    for version in versions.values():
        heat, by_pixel = explain(params, stats, version, jnp.asarray(labels))
        pictures = _as_colour(np.asarray(version, np.float32))  # [S, H, W, 3]
        overlay = overlaid(pictures, np.asarray(heat))
        rows.append(np.stack([pictures, overlay, diverging(np.asarray(by_pixel))], axis=1))
    return np.rint(255 * np.stack(rows, axis=1)).astype(np.uint8)  # [S, R, 3, H, W, 3]


def _explain(
    graph: nnx.GraphDef[models.Classifier],
    params: nnx.State,
    stats: nnx.State,
    images: jax.Array,
    labels: jax.Array,
    *,
    resize: int | None,
) -> tuple[jax.Array, jax.Array]:
    """Heat and relevance, both [S, H, W]."""
    if resize is None:
        shown = images
    else:
        shape = (len(images), resize, resize, images.shape[-1])
        shown = jax.image.resize(images, shape, "bilinear")
    maps = (
        grad_cam(graph, params, stats, shown, labels),
        relevance(graph, params, stats, shown, labels),
    )
    size = images.shape[:3]
    heat, by_pixel = (jax.image.resize(one, size, "bilinear") for one in maps)
    return heat, by_pixel


def overlaid(pictures: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Heat [S, H, W] in [0, 1] over pictures [S, H, W, 3] in [0, 1], both made one picture."""
    opacity = _OPACITY * np.sqrt(heat)[..., None]
    # Grey below, so that the colours of the image are not taken for heat.
    grey = pictures.mean(-1, keepdims=True)
    return (1 - opacity) * grey + opacity * _interpolated(_HEAT, heat)


def diverging(values: np.ndarray) -> np.ndarray:
    """Signed values [S, H, W] as colours [S, H, W, 3]: white at 0, by each map's own scale."""
    scale = np.percentile(np.abs(values), _SATURATED, axis=(1, 2), keepdims=True)
    scaled = np.clip(values / np.where(scale > 0, scale, 1), -1, 1)
    return _interpolated(_DIVERGING, (scaled + 1) / 2)


def _interpolated(colours: tuple[tuple[int, ...], ...], values: np.ndarray) -> np.ndarray:
    table = np.array(colours, np.float32) / 255
    places = np.linspace(0, 1, len(table))
    return np.stack([np.interp(values, places, channel) for channel in table.T], axis=-1)


def _as_colour(images: np.ndarray) -> np.ndarray:
    """Images with one channel or three as three, within [0, 1]."""
    return np.broadcast_to(np.clip(images, 0, 1), (*images.shape[:-1], 3))
