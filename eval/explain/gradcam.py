"""Grad-CAM (Selvaraju et al. 2017): where the evidence for a class lies, on the grid of a late layer."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from train import models


def grad_cam(
    graph: nnx.GraphDef[models.Classifier],
    params: nnx.State,
    stats: nnx.State,
    images: jax.Array,
    labels: jax.Array,
    *,
    feature: str | None = None,
    preprocess: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Heat maps relu(sum_k w_k A_k), with w_k the mean gradient of the class's logit in channel k.

    Pure, and to be jitted with `graph`, `feature` and `preprocess` fixed. Networks with random
    weights are explained at the mean of their weights.

    Args:
        graph: from `nnx.split(model, nnx.Param, nnx.BatchStat)`.
        params: of the model.
        stats: of the model.
        images: float [B, H, W, C] in [0, 1].
        labels: the class to explain for each image, int [B].
        feature: name of the activation A: a map [B, h, w, K], or tokens [B, 1 + h h, K] whose
            class token is left out. By default the last stage of a ResNet, and what enters the
            last block of a ViT (behind it, only the class token counts).
        preprocess: applied to the images first, such as smoothing; need not be differentiable.

    Returns:
        Heat [B, H, W], each image's largest value 1; all zero where nothing speaks for the class.

    Raises:
        ValueError: if the model has no such activation; with the choices.
    """
    height, width = images.shape[1:3]
    shown = images if preprocess is None else preprocess(images)

    def forward(offsets: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        # A copy, because these variables may belong to an outer trace.
        model = nnx.merge(graph, params, stats, copy=True)
        logits, features = model(shown, train=False, offsets=offsets)
        # Images do not mix in evaluation: the gradient of the sum is that of each image's own.
        chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)
        return chosen.sum(), features

    names: list[str] = []  # in the order of the network, which `eval_shape` does not keep

    def activations() -> dict[str, jax.Array]:
        features = forward({})[1]
        names.extend(features)
        return features

    shapes = jax.eval_shape(activations)
    feature = _choose({name: shapes[name] for name in names}, feature)
    offset = jnp.zeros(shapes[feature].shape, jnp.float32)
    gradient, features = jax.grad(forward, has_aux=True)({feature: offset})
    activation = _as_map(features[feature].astype(jnp.float32))  # [B, h, w, K]
    weights = _as_map(gradient[feature]).mean((1, 2), keepdims=True)  # [B, 1, 1, K]
    heat = jax.nn.relu((weights * activation).sum(-1))  # [B, h, w]
    heat = jax.image.resize(heat, (heat.shape[0], height, width), "bilinear")
    largest = heat.max((1, 2), keepdims=True)
    return heat / jnp.where(largest > 0, largest, 1)


def _choose(shapes: dict[str, jax.ShapeDtypeStruct], feature: str | None) -> str:
    """The activation to look at."""
    spatial = [
        name
        for name, value in shapes.items()
        if value.ndim in (3, 4) and not name.startswith("attention")
    ]
    if feature is None:
        tokens = [name for name in spatial if shapes[name].ndim == 3]
        return tokens[-2] if len(tokens) > 1 else spatial[-1]
    if feature not in spatial:
        raise ValueError(f"no spatial activation {feature!r}; choose one of {', '.join(spatial)}")
    return feature


def _as_map(values: jax.Array) -> jax.Array:
    """Tokens [B, 1 + h h, K] without their class token as [B, h, h, K]; maps as they are."""
    if values.ndim == 4:
        return values
    batch, tokens, channels = values.shape
    side = round((tokens - 1) ** 0.5)
    return values[:, 1:].reshape(batch, side, side, channels)
