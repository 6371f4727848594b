"""The vision transformer, operation for operation Hugging Face's ViTForImageClassification."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from train.models.layers import Classifier, Recorder

HALF = (0.5, 0.5, 0.5)

_INIT = jax.nn.initializers.truncated_normal(0.02)
_EPSILON = 1e-12  # of every layer norm, as in the published configuration


class EncoderBlock(nnx.Module):
    """Self-attention and a two-layer perceptron, each behind a layer norm and a shortcut.

    Args:
        hidden: width of a token.
        heads: number of attention heads; divides `hidden`.
        mlp: width inside the perceptron.
        dtype: of the computation.
        rngs: for the parameters.
    """

    def __init__(
        self, hidden: int, heads: int, mlp: int, *, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        self.heads = heads
        self.norm_before = _layer_norm(hidden, dtype, rngs)
        self.query = _linear(hidden, hidden, dtype, rngs)
        self.key = _linear(hidden, hidden, dtype, rngs)
        self.value = _linear(hidden, hidden, dtype, rngs)
        self.out = _linear(hidden, hidden, dtype, rngs)
        self.norm_after = _layer_norm(hidden, dtype, rngs)
        self.mlp_in = _linear(hidden, mlp, dtype, rngs)
        self.mlp_out = _linear(mlp, hidden, dtype, rngs)

    def __call__(self, x: jax.Array, record: Recorder, name: str) -> jax.Array:
        """[B, T, D] -> [B, T, D]; records the attention of every head."""
        x = x + self.attend(self.norm_before(x), record, name)
        y = jax.nn.gelu(self.mlp_in(self.norm_after(x)), approximate=False)  # [B, T, mlp]
        return x + self.mlp_out(y)

    def attend(self, x: jax.Array, record: Recorder, name: str) -> jax.Array:
        """softmax(Q K^T / sqrt(d)) V for every head, then the output projection."""
        batch, tokens, hidden = x.shape
        per_head = (batch, tokens, self.heads, hidden // self.heads)
        query = self.query(x).reshape(per_head)  # [B, T, heads, d]
        key = self.key(x).reshape(per_head)
        value = self.value(x).reshape(per_head)
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * per_head[-1] ** -0.5
        weights = jax.nn.softmax(scores.astype(jnp.float32))  # [B, heads, T, T]
        weights = record(name, weights).astype(value.dtype)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value)  # [B, T, heads, d]
        return self.out(mixed.reshape(x.shape))


class VisionTransformer(Classifier):
    """Patches and a class token through encoder blocks; the class token is classified.

    Activations: "tokens" and "block0" ..., each [B, 1 + grid * grid, hidden] with the class
    token first; "attention0" ..., [B, heads, T, T]; "pre_logits" [B, hidden].

    Args:
        num_classes: number of logits.
        image_size: height and width of the images, which the position embeddings are made for.
        rngs: for the parameters.
        patch_size: side of a patch; divides `image_size`.
        hidden: width of a token.
        layers: number of encoder blocks.
        heads: attention heads per block.
        mlp: width inside each block's perceptron.
        dtype: of the computation.
        mean: per channel.
        std: per channel.
        name: written into saved weights.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        image_size: int,
        rngs: nnx.Rngs,
        patch_size: int = 16,
        hidden: int = 192,
        layers: int = 12,
        heads: int = 3,
        mlp: int = 768,
        dtype: DTypeLike = jnp.float32,
        mean: Sequence[float] = HALF,
        std: Sequence[float] = HALF,
        name: str = "vit",
    ) -> None:
        super().__init__(
            name=name,
            num_classes=num_classes,
            image_size=image_size,
            mean=mean,
            std=std,
            dtype=dtype,
            first_features=hidden,
        )
        if patch_size < 1 or image_size % patch_size:
            raise ValueError(f"patch_size must divide image_size, got {patch_size=}, {image_size=}")
        if hidden % heads:
            raise ValueError(f"heads must divide hidden, got {heads=}, {hidden=}")
        self.patch_size = patch_size
        self.grid = image_size // patch_size
        self.patch = nnx.Conv(
            len(self.mean),
            hidden,
            (patch_size, patch_size),
            strides=patch_size,
            padding="VALID",
            kernel_init=_INIT,
            dtype=self.dtype,
            param_dtype=jnp.float32,
            rngs=rngs,
        )
        tokens = 1 + self.grid**2
        self.cls_token = nnx.Param(_INIT(rngs.params(), (1, 1, hidden), jnp.float32))
        self.position_embeddings = nnx.Param(_INIT(rngs.params(), (1, tokens, hidden), jnp.float32))
        self.blocks = nnx.List(
            [EncoderBlock(hidden, heads, mlp, dtype=self.dtype, rngs=rngs) for _ in range(layers)]
        )
        self.norm = _layer_norm(hidden, self.dtype, rngs)
        self.head = nnx.Linear(hidden, num_classes, kernel_init=_INIT, rngs=rngs)

    def trunk(self, x: jax.Array, train: bool, record: Recorder) -> jax.Array:
        """[B, H, W, C] -> float32 [B, hidden]; alike in training and evaluation but for `smoothing`."""
        if x.shape[1:3] != (self.image_size, self.image_size):
            raise ValueError(
                f"expected images of {self.image_size}x{self.image_size} pixels, "
                f"got {x.shape[1]}x{x.shape[2]}"
            )
        patches = self.smoothed(self.patch(x), train)  # [B, grid, grid, hidden]
        batch, hidden = patches.shape[0], patches.shape[-1]
        cls_token = jnp.broadcast_to(self.cls_token[...], (batch, 1, hidden)).astype(self.dtype)
        x = jnp.concatenate([cls_token, patches.reshape(batch, -1, hidden)], axis=1)  # [B, T, D]
        x = record("tokens", x + self.position_embeddings[...].astype(self.dtype))
        for index, block in enumerate(self.blocks):
            x = record(f"block{index}", block(x, record, f"attention{index}"))
        return self.norm(x)[:, 0].astype(jnp.float32)  # [B, hidden]


def _linear(inputs: int, outputs: int, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(
        inputs, outputs, kernel_init=_INIT, dtype=dtype, param_dtype=jnp.float32, rngs=rngs
    )


def _layer_norm(features: int, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.LayerNorm:
    # The one-pass variance would lose an epsilon of 1e-12 in rounding.
    return nnx.LayerNorm(
        features,
        epsilon=_EPSILON,
        use_fast_variance=False,
        dtype=dtype,
        param_dtype=jnp.float32,
        rngs=rngs,
    )
