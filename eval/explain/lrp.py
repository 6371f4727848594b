"""Layer-wise relevance propagation (Bach et al. 2015) through this project's networks.

The networks are walked through once more, layer by layer, with weights under the rules of
`eval.explain.rules`. Batch normalisation is folded into its convolution, the gain and bias of a
layer norm into the linear layer behind it; attention weights and the deviation of a layer norm are
held constant. All else is the network's own arithmetic, and automatic differentiation propagates.

What has no pixels behind it (the class token of a ViT, the constant part of smoothing layers) still
takes relevance; it is handed to the pixels in the end, in proportion to the magnitude of their own.
Networks with random weights are explained at the mean of their weights.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from eval.explain import rules
from eval.explain.rules import Rule
from train import models
from train.models.layers import BatchNorm
from train.models.resnet import ResNet
from train.models.vit import EncoderBlock, VisionTransformer

First = Literal["box", "inside"]
# What the first layer makes of the pixels, given its convolution and extra bias.
_FirstLayer = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rule of every kind of layer.

    Attributes:
        convolution: of the convolutions of a ResNet.
        linear: of heads and of everything in a ViT but its patches.
        first: of the layer that sees pixels: "box" is the z^B rule for pixels in [0, 1]; "inside"
            is `convolution`, with pixels after normalisation as its input.
    """

    convolution: Rule = dataclasses.field(default_factory=rules.gamma)
    linear: Rule = dataclasses.field(default_factory=rules.epsilon)
    first: First = "box"

    def __post_init__(self) -> None:
        if self.first not in get_args(First):
            raise ValueError(f"first must be one of {get_args(First)}, got {self.first!r}")


def relevance(
    graph: nnx.GraphDef[models.Classifier] | models.Classifier,
    params: nnx.State | None,
    stats: nnx.State | None,
    images: jax.Array,
    labels: jax.Array,
    *,
    rule: Rules = Rules(),
    channels: bool = False,
) -> jax.Array:
    """How much every pixel speaks for (above zero) or against a class.

    The relevances of an image add up to the logit of its class, but for rounding, what epsilon
    absorbs, and biases of units whose inputs are all zero, which have nobody to share with. Pure,
    and to be jitted with `graph`, `rule` and `channels` fixed; always in float32.

    Args:
        graph: from `nnx.split(model, nnx.Param, nnx.BatchStat)`, or a model whole.
        params: of the model; None for a whole one.
        stats: of the model; None for a whole one.
        images: float [B, H, W, C] in [0, 1].
        labels: the class to explain for each image, int [B].
        rule: of every kind of layer.
        channels: keep the channels apart.

    Returns:
        Relevance [B, H, W], or [B, H, W, C] with `channels`.

    Raises:
        ValueError: for a model with a trunk that is unknown here.
    """
    model = graph if isinstance(graph, models.Classifier) else nnx.merge(graph, params, stats)
    walk = _WALKS.get(type(model).trunk)
    if walk is None:
        raise ValueError(f"no relevance rules for {type(model).__name__}; only for {_KNOWN}")
    pixels = model.normalise(images).astype(jnp.float32)

    def logit(shares: jax.Array, constants: jax.Array) -> jax.Array:
        first = partial(_first_layer, model, rule, pixels, shares)
        logits = walk(model, first, constants, rule)  # [B, K]
        return jnp.take_along_axis(logits, labels[:, None], axis=1).sum()

    # Of a unit that is one, the cotangent is the relevance.
    by_pixel, by_constant = jax.grad(logit, (0, 1))(
        jnp.ones_like(pixels), jnp.ones((len(images), 1, 1, 1), jnp.float32)
    )
    by_pixel += _shares_of(by_pixel) * by_constant
    return by_pixel if channels else by_pixel.sum(-1)


def _shares_of(by_pixel: jax.Array) -> jax.Array:
    """Shares in proportion to magnitude; they add up to one in each image, or to zero."""
    magnitude = jnp.abs(by_pixel)
    total = magnitude.sum((1, 2, 3), keepdims=True)
    return magnitude / jnp.where(total > 0, total, 1)


def _first_layer(
    model: models.Classifier,
    rule: Rules,
    pixels: jax.Array,
    shares: jax.Array,
    f: rules.Bilinear,
    weights: jax.Array,
    bias: jax.Array,
) -> jax.Array:
    """f(pixels) + bias, whose relevance arrives at `shares`."""
    if rule.first == "inside":
        return rules.linear(f, rule.convolution, pixels * shares, weights, bias)
    black = model.normalise(jnp.zeros_like(pixels)).astype(jnp.float32)
    white = model.normalise(jnp.ones_like(pixels)).astype(jnp.float32)
    return rules.boxed(f, shares, pixels, black, white, weights, bias)


def _walk_resnet(model: Any, first: _FirstLayer, constants: jax.Array, rule: Rules) -> jax.Array:
    """Logits of a `ResNet`."""
    x = jax.nn.relu(first(*_folded(model.conv1, model.bn1)))
    if model.stem == "7x7":
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
    if model.smoothing:
        x = rules.affine(partial(model.smoothed, train=False), x, constants)
    for stage in model.stages:
        for block in stage:
            x = _residual_block(block, x, rule.convolution)
    return _dense(x.mean((1, 2)), rule.linear, model.head)


def _residual_block(block: Any, x: jax.Array, rule: Rule) -> jax.Array:
    """A `BasicBlock` or a `Bottleneck`."""
    names = [name for name in ("1", "2", "3") if hasattr(block, f"conv{name}")]
    y = x
    for name in names:
        y = jax.nn.relu(y) if name != "1" else y
        f, weights, bias = _folded(getattr(block, f"conv{name}"), getattr(block, f"bn{name}"))
        y = rules.linear(f, rule, y, weights, bias)
    if block.downsample:
        f, weights, bias = _folded(*block.downsample)
        skip = rules.linear(f, rule, x, weights, bias)
    else:
        skip = block.skip(x, False)
    return jax.nn.relu(y + skip)


def _walk_vit(model: Any, first: _FirstLayer, constants: jax.Array, rule: Rules) -> jax.Array:
    """Logits of a `VisionTransformer`."""
    f, weights, bias = _convolution(model.patch)
    positions = model.position_embeddings[...].astype(jnp.float32)  # [1, 1 + grid^2, D]
    hidden = positions.shape[-1]
    at_patches = positions[:, 1:].reshape(1, model.grid, model.grid, hidden)
    if model.smoothing:
        patches = first(f, weights, bias)
        patches = rules.affine(partial(model.smoothed, train=False), patches, constants)
        patches = patches + at_patches * constants
    else:
        patches = first(f, weights, bias + at_patches)  # [B, grid, grid, D]
    # The class token has no pixels behind it: what it is given comes back by `constants`.
    token = (model.cls_token[...] + positions[:, :1]) * constants[..., 0]  # [B, 1, D]
    x = jnp.concatenate([token, patches.reshape(len(patches), -1, hidden)], axis=1)  # [B, T, D]
    for block in model.blocks:
        x = x + _attend(block, x, rule.linear)
        y = _normed_dense(x, rule.linear, block.norm_after, block.mlp_in)
        x = x + _dense(rules.gelu(y), rule.linear, block.mlp_out)
    return _normed_dense(x[:, 0], rule.linear, model.norm, model.head)


def _attend(block: EncoderBlock, x: jax.Array, rule: Rule) -> jax.Array:
    """Self-attention with its weights held constant."""
    batch, tokens, hidden = x.shape
    per_head = (batch, tokens, block.heads, hidden // block.heads)
    normed = jax.lax.stop_gradient(block.norm_before(x))
    query = block.query(normed).astype(jnp.float32).reshape(per_head)  # [B, T, heads, d]
    key = block.key(normed).astype(jnp.float32).reshape(per_head)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * per_head[-1] ** -0.5
    attention = jax.lax.stop_gradient(jax.nn.softmax(scores))  # [B, heads, T, T]
    value = _normed_dense(x, rule, block.norm_before, block.value).reshape(per_head)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", attention, value)  # [B, T, heads, d]
    return _dense(mixed.reshape(x.shape), rule, block.out)


def _dense(x: jax.Array, rule: Rule, layer: nnx.Linear) -> jax.Array:
    weights, bias = _weights(layer)
    return rules.linear(jnp.matmul, rule, x, weights, _spread(bias, x.ndim))


def _normed_dense(x: jax.Array, rule: Rule, norm: nnx.LayerNorm, layer: nnx.Linear) -> jax.Array:
    """A layer norm and the linear layer behind it, which takes over its gain and bias."""
    weights, bias = _weights(layer)
    gain, shift = norm.scale[...], norm.bias[...]  # type: ignore[index]
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    normed = centred * jax.lax.stop_gradient(jax.lax.rsqrt(variance + norm.epsilon))
    bias = _spread(bias + shift @ weights, x.ndim)
    return rules.linear(jnp.matmul, rule, normed, gain[:, None] * weights, bias)


def _folded(conv: nnx.Conv, norm: BatchNorm) -> tuple[rules.Bilinear, jax.Array, jax.Array]:
    """A convolution with the batch normalisation behind it, in evaluation."""
    f, kernel, _ = _convolution(conv)
    gain, shift = _gain_and_shift(norm)
    return f, kernel * gain, shift


def _gain_and_shift(norm: BatchNorm) -> tuple[jax.Array, jax.Array]:
    """Batch normalisation in evaluation is a gain and a shift, each [1, 1, 1, C]."""
    gain = norm.scale[...] * jax.lax.rsqrt(norm.var[...] + norm.epsilon)
    return _spread(gain, 4), _spread(norm.bias[...] - norm.mean[...] * gain, 4)


def _convolution(conv: nnx.Conv) -> tuple[rules.Bilinear, jax.Array, jax.Array]:
    """A convolution as a function of pixels and kernel, its kernel [h, w, in, out] and bias."""

    def f(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            window_strides=(stride, stride),
            padding=conv.padding,  # type: ignore[arg-type]
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    stride: Any = conv.strides  # one number, in all our models
    kernel, bias = _weights(conv)
    return f, kernel, _spread(bias, 4)


def _weights(layer: nnx.Linear | nnx.Conv) -> tuple[jax.Array, jax.Array]:
    """Weights [..., in, out], and bias [out], zero where there is none."""
    kernel = layer.kernel[...]
    return kernel, jnp.zeros(kernel.shape[-1:]) if layer.bias is None else layer.bias[...]


def _spread(values: jax.Array, ndim: int) -> jax.Array:
    return values.reshape((1,) * (ndim - 1) + values.shape)  # [C] -> [1, ..., 1, C]


# By the function that a model's trunk is: a model with a trunk of its own is not mistaken for one.
_WALKS: dict[Any, Callable[[Any, _FirstLayer, jax.Array, Rules], jax.Array]] = {
    ResNet.trunk: _walk_resnet,
    VisionTransformer.trunk: _walk_vit,
}
_KNOWN = "ResNet, CifarResNet and VisionTransformer"
