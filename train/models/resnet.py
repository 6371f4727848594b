"""Residual networks: torchvision's ResNet-18 and ResNet-50, and the thin ones for CIFAR."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from train.models.layers import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    BatchNorm,
    Classifier,
    Initializer,
    Recorder,
    conv,
)

Stem = Literal["3x3", "7x7"]
Shortcut = Literal["projection", "pad"]

_FAN_OUT = jax.nn.initializers.variance_scaling(2.0, "fan_out", "normal")
_FAN_IN = jax.nn.initializers.variance_scaling(2.0, "fan_in", "normal")
# Uniform within 1 / sqrt(inputs): PyTorch's own initialisation of a linear layer.
_TORCH_LINEAR = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class _Block(nnx.Module):
    """The shortcut of a residual block, for both kinds.

    Args:
        in_features: channels that come in.
        out_features: channels that go out.
        stride: of the block.
        shortcut: what to do when shapes change: "projection" learns a 1x1 convolution; "pad"
            ("option A") takes every second pixel and adds zero channels, equally on both sides.
        make_conv: `conv` with everything given but features, kernel size and stride.
        make_norm: `BatchNorm` with everything given but features.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        stride: int,
        shortcut: Shortcut,
        make_conv: Callable[..., nnx.Conv],
        make_norm: Callable[[int], BatchNorm],
    ) -> None:
        self.stride = stride
        self.added_channels = out_features - in_features
        # Empty where nothing is learned.
        self.downsample: nnx.List[Any] = nnx.List([])
        if shortcut == "projection" and (stride != 1 or in_features != out_features):
            self.downsample.append(make_conv(in_features, out_features, 1, stride=stride))
            self.downsample.append(make_norm(out_features))

    def skip(self, x: jax.Array, train: bool) -> jax.Array:
        """The input, in the shape of the block's output."""
        if self.downsample:
            projection, norm = self.downsample
            return norm(projection(x), train=train)
        if self.stride != 1:
            x = x[:, :: self.stride, :: self.stride, :]
        if self.added_channels:
            before = self.added_channels // 2
            after = self.added_channels - before
            x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (before, after)))
        return x


class BasicBlock(_Block):
    """Two 3x3 convolutions; arguments as for `_Block`, with `width` channels throughout."""

    expansion: ClassVar[int] = 1

    def __init__(
        self,
        in_features: int,
        width: int,
        stride: int,
        shortcut: Shortcut,
        make_conv: Callable[..., nnx.Conv],
        make_norm: Callable[[int], BatchNorm],
    ) -> None:
        super().__init__(in_features, width, stride, shortcut, make_conv, make_norm)
        self.conv1 = make_conv(in_features, width, 3, stride=stride)
        self.bn1 = make_norm(width)
        self.conv2 = make_conv(width, width, 3)
        self.bn2 = make_norm(width)

    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """[B, H, W, in_features] -> [B, H / stride, W / stride, width]."""
        y = jax.nn.relu(self.bn1(self.conv1(x), train=train))
        y = self.bn2(self.conv2(y), train=train)
        return jax.nn.relu(y + self.skip(x, train))


class Bottleneck(_Block):
    """1x1, 3x3, 1x1 convolutions; the stride is in the 3x3 (torchvision's "v1.5")."""

    expansion: ClassVar[int] = 4

    def __init__(
        self,
        in_features: int,
        width: int,
        stride: int,
        shortcut: Shortcut,
        make_conv: Callable[..., nnx.Conv],
        make_norm: Callable[[int], BatchNorm],
    ) -> None:
        out_features = width * self.expansion
        super().__init__(in_features, out_features, stride, shortcut, make_conv, make_norm)
        self.conv1 = make_conv(in_features, width, 1)
        self.bn1 = make_norm(width)
        self.conv2 = make_conv(width, width, 3, stride=stride)
        self.bn2 = make_norm(width)
        self.conv3 = make_conv(width, out_features, 1)
        self.bn3 = make_norm(out_features)

    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """[B, H, W, in_features] -> [B, H / stride, W / stride, 4 width]."""
        y = jax.nn.relu(self.bn1(self.conv1(x), train=train))
        y = jax.nn.relu(self.bn2(self.conv2(y), train=train))
        y = self.bn3(self.conv3(y), train=train)
        return jax.nn.relu(y + self.skip(x, train))


class ResNet(Classifier):
    """Stem, stages of residual blocks (each stage halves the image and doubles the width), mean.

    Activations: "stem", "stage1" ..., each [B, H', W', features], and "pre_logits" [B, D].

    Args:
        num_classes: number of logits.
        image_size: height and width of the images; other sizes work too.
        rngs: for the parameters.
        block: kind of block.
        blocks: number of blocks in each stage.
        width: channels of the stem and of the first stage, before the block's expansion.
        stem: "7x7" halves the image twice (stride 2, then max-pooling); "3x3" keeps its size.
        dtype: of the computation.
        mean: per channel.
        std: per channel.
        name: written into saved weights.
    """

    _shortcut: ClassVar[Shortcut] = "projection"
    _kernel_init: ClassVar[Initializer] = staticmethod(_FAN_OUT)
    _head_init: ClassVar[Initializer] = staticmethod(_TORCH_LINEAR)

    def __init__(
        self,
        *,
        num_classes: int,
        image_size: int,
        rngs: nnx.Rngs,
        block: type[BasicBlock] | type[Bottleneck] = BasicBlock,
        blocks: Sequence[int] = (2, 2, 2, 2),
        width: int = 64,
        stem: Stem = "7x7",
        dtype: DTypeLike = jnp.float32,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        name: str = "resnet",
    ) -> None:
        super().__init__(
            name=name,
            num_classes=num_classes,
            image_size=image_size,
            mean=mean,
            std=std,
            dtype=dtype,
            first_features=width,
        )
        if stem not in get_args(Stem):
            raise ValueError(f"stem must be one of {get_args(Stem)}, got {stem!r}")
        make_conv = partial(conv, kernel_init=self._kernel_init, dtype=self.dtype, rngs=rngs)
        make_norm = partial(BatchNorm, dtype=self.dtype)
        self.stem = stem
        size, stride = (7, 2) if stem == "7x7" else (3, 1)
        self.conv1 = make_conv(len(self.mean), width, size, stride=stride)
        self.bn1 = make_norm(width)
        stages = []
        features = width
        for index, count in enumerate(blocks):
            stage = []
            for position in range(count):
                stride = 2 if index > 0 and position == 0 else 1
                inside = width * 2**index
                stage.append(block(features, inside, stride, self._shortcut, make_conv, make_norm))
                features = inside * block.expansion
            stages.append(nnx.List(stage))
        self.stages = nnx.List(stages)
        self.head = nnx.Linear(features, num_classes, kernel_init=self._head_init, rngs=rngs)

    def trunk(self, x: jax.Array, train: bool, record: Recorder) -> jax.Array:
        """[B, H, W, C] -> float32 [B, D]."""
        x = jax.nn.relu(self.bn1(self.conv1(x), train=train))
        if self.stem == "7x7":
            x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        x = record("stem", self.smoothed(x, train))
        for index, stage in enumerate(self.stages):
            for block in stage:
                x = block(x, train)
            x = record(f"stage{index + 1}", x)  # [B, H / 2^index, W / 2^index, features]
        return x.astype(jnp.float32).mean((1, 2))  # [B, D]


class CifarResNet(ResNet):
    """The thin networks for CIFAR (He et al. 2016, section 4.2): depth 6 n + 2, no projections."""

    _shortcut: ClassVar[Shortcut] = "pad"
    _kernel_init: ClassVar[Initializer] = staticmethod(_FAN_IN)
    _head_init: ClassVar[Initializer] = staticmethod(_FAN_IN)

    def __init__(
        self,
        *,
        num_classes: int,
        image_size: int,
        rngs: nnx.Rngs,
        blocks: Sequence[int] = (3, 3, 3),
        width: int = 16,
        dtype: DTypeLike = jnp.float32,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        name: str = "cifar_resnet",
    ) -> None:
        super().__init__(
            num_classes=num_classes,
            image_size=image_size,
            rngs=rngs,
            block=BasicBlock,
            blocks=blocks,
            width=width,
            stem="3x3",
            dtype=dtype,
            mean=mean,
            std=std,
            name=name,
        )
