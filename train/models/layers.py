"""What every model shares: its contract, named activations, batch normalisation, convolution."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from train.models import noise
from train.models.convolution import convolve

# Statistics of ImageNet, on which torchvision's and most published CIFAR weights were trained.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Initializer = jax.nn.initializers.Initializer


class Recorder:
    """Collects the named activations of one forward pass, and may shift them.

    Args:
        offsets: arrays added to the activations of the same name. The gradient of any output
            with respect to a zero offset is its gradient with respect to that activation.
    """

    def __init__(self, offsets: Mapping[str, jax.Array] | None = None) -> None:
        self.features: dict[str, jax.Array] = {}
        self._offsets = dict(offsets or {})

    def __call__(self, name: str, value: jax.Array) -> jax.Array:
        """Keep `value` under `name` and hand it back, shifted by the offset of that name."""
        if name in self._offsets:
            offset = self._offsets[name]
            if offset.shape != value.shape:
                raise ValueError(
                    f"offset for {name!r}: expected shape {value.shape}, got {offset.shape}"
                )
            value = value + offset.astype(value.dtype)
        self.features[name] = value
        return value

    def check_offsets_used(self) -> None:
        """Raise if an offset named an activation that this model does not have."""
        unknown = sorted(self._offsets.keys() - self.features.keys())
        if unknown:
            raise ValueError(f"no activation named {unknown}; this model has {list(self.features)}")


class Classifier(nnx.Module):
    """Base of all models: checks and normalises pixels, runs the trunk, applies the head.

    The mode is an argument, not an attribute, so that one graph definition serves training and
    evaluation in a pure step (see `apply`).

    Mean and standard deviation are static constants: no optimiser or checkpoint can touch them.

    Layers put into the list `smoothing` act on the first features, which have `first_features`
    channels: behind the stem of a ResNet, on the grid of patches of a ViT.

    Args:
        name: written into saved weights.
        num_classes: number of logits.
        image_size: height and width that the model is made for.
        mean: per channel, in pixel units [0, 1]; its length is the number of input channels.
        std: as `mean`.
        dtype: of the computation; parameters and logits are float32 always.
        first_features: channels after the first convolution.
    """

    head: nnx.Linear

    def __init__(
        self,
        *,
        name: str,
        num_classes: int,
        image_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        dtype: DTypeLike,
        first_features: int,
    ) -> None:
        if num_classes < 1 or image_size < 1:
            raise ValueError(
                f"num_classes and image_size must be positive, got {num_classes=}, {image_size=}"
            )
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise ValueError(
                "mean and std need one number per channel each, std above 0, "
                f"got {tuple(mean)=}, {tuple(std)=}"
            )
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"dtype must be a floating type, got {dtype}")
        self.name = name
        self.num_classes = num_classes
        self.image_size = image_size
        self.mean = tuple(float(m) for m in mean)
        self.std = tuple(float(s) for s in std)
        self.dtype = jnp.dtype(dtype)
        self.first_features = first_features
        self.smoothing: nnx.List[Any] = nnx.List([])

    def __call__(
        self,
        images: jax.Array,
        *,
        train: bool = False,
        offsets: Mapping[str, jax.Array] | None = None,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Classify images.

        Args:
            images: floating pixels in [0, 1], [B, H, W, C].
            train: normalise by the batch, and move the running averages.
            offsets: arrays added to the named activations (see `Recorder`).

        Returns:
            Logits, float32 [B, num_classes], and the named activations.

        Raises:
            ValueError: if the images have another rank, channel count or an integer type.
        """
        record = Recorder(offsets)
        pre_logits = record("pre_logits", self.trunk(self.normalise(images), train, record))
        logits = self.head(pre_logits)  # [B, num_classes]
        record.check_offsets_used()
        return logits, record.features

    def normalise(self, images: jax.Array) -> jax.Array:
        """(images - mean) / std in float32, then in the dtype of the computation."""
        channels = len(self.mean)
        if images.ndim != 4 or images.shape[-1] != channels:
            raise ValueError(f"expected images [B, H, W, {channels}], got {images.shape=}")
        if not jnp.issubdtype(images.dtype, jnp.floating):
            raise ValueError(f"expected floating pixels in [0, 1], got {images.dtype=}")
        mean = jnp.array(self.mean, jnp.float32).reshape(1, 1, 1, channels)
        std = jnp.array(self.std, jnp.float32).reshape(1, 1, 1, channels)
        return ((images.astype(jnp.float32) - mean) / std).astype(self.dtype)

    def smoothed(self, x: jax.Array, train: bool) -> jax.Array:
        """The first features [B, H', W', first_features] after the layers of `smoothing`."""
        for layer in self.smoothing:
            x = layer(x, train=train).astype(x.dtype)
        return x

    def trunk(self, x: jax.Array, train: bool, record: Recorder) -> jax.Array:
        """Everything between normalisation and head: [B, H, W, C] -> float32 [B, D]."""
        raise NotImplementedError


def apply(
    graph: nnx.GraphDef[Classifier],
    params: nnx.State,
    stats: nnx.State,
    images: jax.Array,
    *,
    train: bool,
    offsets: Mapping[str, jax.Array] | None = None,
    key: jax.Array | None = None,
) -> tuple[jax.Array, dict[str, jax.Array], nnx.State]:
    """A model as a pure function, to be jitted and differentiated.

    Args:
        graph: from `graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)`; static.
        params: trainable.
        stats: running averages.
        images: floating pixels in [0, 1], [B, H, W, C].
        train: normalise by the batch, and move the running averages.
        offsets: arrays added to the named activations (see `Recorder`).
        key: of the noise of random models (see `train.models.noise`); others ignore it.

    Returns:
        Logits, named activations, and the new running averages (the old ones unless `train`).

    Raises:
        ValueError: if the model is random and there is no key.
    """
    # A copy, since the caller's variables may belong to an outer trace and cannot change here.
    model = nnx.merge(graph, params, stats, copy=True)
    if noise.is_noisy(model):
        if key is None:
            raise ValueError(f"{model.name!r} has random weights: expected a key, got None")
        noise.add_noise(model, key)
    logits, features = model(images, train=train, offsets=offsets)
    return logits, features, nnx.state(model, nnx.BatchStat)


class BatchNorm(nnx.Module):
    """Batch normalisation over all axes but the last, as PyTorch defines it.

    y = scale (x - mean) / sqrt(var + epsilon) + bias, with the biased variance of the batch in
    training; running <- (1 - momentum) running + momentum batch, there with the unbiased
    variance. Always in float32: running averages rounded to bfloat16 would stop moving.
    """

    def __init__(
        self,
        features: int,
        *,
        dtype: DTypeLike,
        momentum: float = 0.1,
        epsilon: float = 1e-5,
    ) -> None:
        self.scale = nnx.Param(jnp.ones((features,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((features,), jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros((features,), jnp.float32))
        self.var = nnx.BatchStat(jnp.ones((features,), jnp.float32))
        self.dtype = jnp.dtype(dtype)
        self.momentum = momentum
        self.epsilon = epsilon

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Normalise [..., C]; in training also move the running averages."""
        x = x.astype(jnp.float32)
        mean, var = self.mean[...], self.var[...]  # [C]
        if train:
            axes = tuple(range(x.ndim - 1))
            mean = x.mean(axes)
            # Two passes: mean(x^2) - mean^2 cancels when the mean is large.
            var = jnp.square(x - _per_channel(mean, x.ndim)).mean(axes)
            count = x.size // x.shape[-1]
            self._move_averages(mean, var * (count / max(count - 1, 1)))
        gain = jax.lax.rsqrt(var + self.epsilon) * self.scale[...]
        y = (x - _per_channel(mean, x.ndim)) * _per_channel(gain, x.ndim)
        return (y + _per_channel(self.bias[...], x.ndim)).astype(self.dtype)

    def _move_averages(self, mean: jax.Array, unbiased_var: jax.Array) -> None:
        keep = 1.0 - self.momentum
        mean, unbiased_var = jax.lax.stop_gradient((mean, unbiased_var))
        self.mean[...] = keep * self.mean[...] + self.momentum * mean
        self.var[...] = keep * self.var[...] + self.momentum * unbiased_var


def _per_channel(values: jax.Array, ndim: int) -> jax.Array:
    return values.reshape((1,) * (ndim - 1) + values.shape)  # [C] -> [1, ..., 1, C]


def conv(
    in_features: int,
    features: int,
    kernel_size: int,
    *,
    stride: int = 1,
    kernel_init: Initializer,
    dtype: DTypeLike,
    rngs: nnx.Rngs,
) -> nnx.Conv:
    """A convolution without bias, zero-padded by half its kernel on every side.

    The padding is explicit because "SAME" pads stride-2 convolutions on one side only, which
    shifts the image against weights that were trained in PyTorch.
    """
    half = kernel_size // 2
    return nnx.Conv(
        in_features,
        features,
        (kernel_size, kernel_size),
        strides=stride,
        padding=((half, half), (half, half)),
        use_bias=False,
        kernel_init=kernel_init,
        dtype=dtype,
        param_dtype=jnp.float32,
        conv_general_dilated=convolve,
        rngs=rngs,
    )
