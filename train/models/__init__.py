"""Image classifiers by name; every one maps pixels in [0, 1] to `(logits, features)`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from train.models.layers import Classifier, apply
from train.models.pretrained import LoadReport, load, save
from train.models.resnet import Bottleneck, CifarResNet, ResNet, Stem
from train.models.vit import VisionTransformer

__all__ = ["NAMES", "Classifier", "LoadReport", "apply", "build", "check_options", "load", "save"]

# Up to this many pixels a stem or patch that shrinks the image four times or more loses too much.
_SMALL_IMAGE = 64


def _resnet18(*, image_size: int, stem: Stem | None = None, **options: Any) -> Classifier:
    if stem is None:
        stem = "3x3" if image_size <= _SMALL_IMAGE else "7x7"
    return ResNet(blocks=(2, 2, 2, 2), image_size=image_size, stem=stem, **options)


def _resnet50(*, stem: Stem | None = None, **options: Any) -> Classifier:
    return ResNet(block=Bottleneck, blocks=(3, 4, 6, 3), stem=stem or "7x7", **options)


def _vit_tiny(*, image_size: int, patch_size: int | None = None, **options: Any) -> Classifier:
    if patch_size is None:
        patch_size = 4 if image_size <= _SMALL_IMAGE else 16
    return VisionTransformer(image_size=image_size, patch_size=patch_size, **options)


def _cifar_resnet(depth: int) -> Callable[..., Classifier]:
    blocks_per_stage = (depth - 2) // 6
    return partial(CifarResNet, blocks=(blocks_per_stage,) * 3)


_BUILDERS: dict[str, Callable[..., Classifier]] = {
    "resnet18": _resnet18,
    "resnet50": _resnet50,
    "vit_tiny": _vit_tiny,
    **{f"resnet{depth}": _cifar_resnet(depth) for depth in (8, 20, 32, 44, 56)},
    # Small enough to compile and train inside a test; not for use.
    "_tiny": partial(CifarResNet, blocks=(1, 1), width=8),
}

# Options that only some models understand.
_STEM_MODELS = ("resnet18", "resnet50")
_PATCH_MODELS = ("vit_tiny",)

NAMES = tuple(name for name in _BUILDERS if not name.startswith("_"))


def check_options(name: str, *, stem: str | None = None, patch_size: int | None = None) -> None:
    """Raise unless there is such a model, and it has the options that are given.

    Args:
        name: as for `build`.
        stem: as for `build`.
        patch_size: as for `build`.

    Raises:
        ValueError: with the choices.
    """
    if name not in _BUILDERS:
        raise ValueError(f"unknown model {name!r}; choose one of {', '.join(NAMES)}")
    if stem is not None and name not in _STEM_MODELS:
        raise ValueError(f"{name} has no choice of stem (only {', '.join(_STEM_MODELS)})")
    if patch_size is not None and name not in _PATCH_MODELS:
        raise ValueError(f"{name} has no patches (only {', '.join(_PATCH_MODELS)})")


def build(
    name: str,
    *,
    num_classes: int,
    image_size: int,
    rngs: nnx.Rngs,
    dtype: DTypeLike = jnp.float32,
    patch_size: int | None = None,
    stem: Stem | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Classifier:
    """Make a freshly initialised model.

    Args:
        name: one of `NAMES`.
        num_classes: number of logits.
        image_size: height and width of the images.
        rngs: for the parameters.
        dtype: of the computation; parameters and logits are float32 always.
        patch_size: side of a ViT's patches; by default 4 up to 64 pixels, 16 above.
        stem: "3x3" or "7x7" of resnet18 and resnet50; by default "7x7", except for resnet18 up
            to 64 pixels.
        mean: per channel, in pixel units; by default that of the published weights.
        std: as `mean`.

    Returns:
        A model: `model(images, train=bool) -> (logits, features)`.

    Raises:
        ValueError: for an unknown name, or an option that the model does not have.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> model = build("resnet8", num_classes=10, image_size=32, rngs=nnx.Rngs(0))
        >>> logits, features = model(jnp.zeros((1, 32, 32, 3)))
        >>> logits.shape, features["stage3"].shape
        ((1, 10), (1, 8, 8, 64))
    """
    check_options(name, stem=stem, patch_size=patch_size)
    if (mean is None) != (std is None):
        raise ValueError(f"give both mean and std, or neither; got {mean=}, {std=}")
    optional = {"patch_size": patch_size, "stem": stem, "mean": mean, "std": std}
    return _BUILDERS[name](
        name=name,
        num_classes=num_classes,
        image_size=image_size,
        rngs=rngs,
        dtype=dtype,
        **{option: value for option, value in optional.items() if value is not None},
    )
