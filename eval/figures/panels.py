"""Explanations as pictures: heat over an image, relevance in a diverging map. Needs no plotting."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from eval.explain import grad_cam, relevance
from train import models

ROWS = ("original", "blurred", "smoothed")
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


def explanation_panels(
    graph: nnx.GraphDef[models.Classifier],
    params: nnx.State,
    stats: nnx.State,
    images: jax.Array,
    labels: jax.Array,
    *,
    smoothed: jax.Array,
    blurred: jax.Array,
    resize: int | None = None,
) -> np.ndarray:
    """What a network looks at in images, and in their blurred and smoothed versions.

    Args:
        graph: from `nnx.split(model, nnx.Param, nnx.BatchStat)`.
        params: of the model.
        stats: of the model.
        images: float [S, H, W, C] in [0, 1].
        labels: the class to explain for each image, int [S].
        smoothed: the same images smoothed.
        blurred: the same images blurred.
        resize: side to which the network wants its images brought first.

    Returns:
        Pictures, uint8 [S, 3, 3, H, W, 3]: rows original, blurred, smoothed; columns image,
        Grad-CAM over the image, relevance (red for the class, blue against it). Relevance is
        scaled by image and row.
    """
    explain = jax.jit(partial(_explain, graph, resize=resize))
    rows = []
    for version in (images, blurred, smoothed):
        heat, by_pixel = explain(params, stats, version, jnp.asarray(labels))
        pictures = _as_colour(np.asarray(version, np.float32))  # [S, H, W, 3]
        overlay = overlaid(pictures, np.asarray(heat))
        rows.append(np.stack([pictures, overlay, diverging(np.asarray(by_pixel))], axis=1))
    return np.rint(255 * np.stack(rows, axis=1)).astype(np.uint8)  # [S, 3, 3, H, W, 3]


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
