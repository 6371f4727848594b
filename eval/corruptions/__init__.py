"""Common corruptions of CIFAR-10-C and ImageNet-C that need no photographs, on the device.

    keys = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(0)))(rows)
    noisy = corruptions.corrupt(keys, images, name="gaussian_noise", severity=3, constants="cifar")

Definitions follow Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and
perturbations" (2019), and the programs that made the published files; what is approximate is said where it is done.
Frost is missing, as it needs photographs of frost. Where the published files can be had, prefer them
(`eval.published`): the figures of the literature are mostly theirs.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from eval.corruptions import blur, digital, jpeg, noise, spatter, weather
from eval.corruptions.constants import TABLES
from eval.corruptions.filters import truncate_to_bytes

# A corruption of one image: (key, image [H, W, C], constants of the severity) -> image, not yet cut to bytes.
_Corruption = Callable[[jax.Array, jax.Array, Any], jax.Array]

_CORRUPTIONS: dict[str, _Corruption] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "glass_blur": blur.glass_blur,
    "defocus_blur": blur.defocus_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "fog": weather.fog,
    "snow": weather.snow,
    "spatter": spatter.spatter,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "saturate": digital.saturate,
    "jpeg_compression": jpeg.jpeg_compression,
    "pixelate": digital.pixelate,
    "elastic_transform": digital.elastic_transform,
}

NAMES: tuple[str, ...] = tuple(_CORRUPTIONS)
SEVERITIES: tuple[int, ...] = (1, 2, 3, 4, 5)
_LARGEST_OF_CIFAR = 64  # pixels

__all__ = ["NAMES", "SEVERITIES", "constants_for", "corrupt"]


def constants_for(image_size: int) -> Literal["cifar", "imagenet"]:
    """The table of constants that suits a size: CIFAR's up to 64 pixels, ImageNet's above."""
    return "cifar" if image_size <= _LARGEST_OF_CIFAR else "imagenet"


def corrupt(
    keys: jax.Array, images: jax.Array, *, name: str, severity: int, constants: str
) -> jax.Array:
    """Corrupts each image with its own key.

    An image's result depends on its key and its pixels alone, not on the batch around it.

    Args:
        keys: typed keys ``[B]``.
        images: float ``[B, H, W, C]`` in [0, 1], C of 1 or 3.
        name: one of `NAMES`.
        severity: 1 to 5.
        constants: "cifar" or "imagenet"; see `constants_for`.

    Returns:
        float32 ``[B, H, W, C]`` in [0, 1], whole multiples of 1/255, rounded down as in the published files.
    """
    _check_choice("name", name, NAMES)
    _check_choice("severity", severity, SEVERITIES)
    _check_choice("constants", constants, tuple(TABLES))
    is_float = jnp.issubdtype(images.dtype, jnp.floating)
    if images.ndim != 4 or images.shape[3] not in (1, 3) or not is_float:
        raise ValueError(
            "images: expected float [B, H, W, C] with 1 or 3 channels, "
            f"got {images.dtype} {list(images.shape)}"
        )
    if keys.shape != images.shape[:1] or not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"keys: expected typed keys [{len(images)}], one for each image, "
            f"got {keys.dtype} {list(keys.shape)}"
        )
    return _corrupt(keys, images, name, int(severity), constants)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _corrupt(
    keys: jax.Array, images: jax.Array, name: str, severity: int, constants: str
) -> jax.Array:
    one = _CORRUPTIONS[name]
    chosen = TABLES[constants][name][severity - 1]
    corrupted = jax.vmap(lambda key, image: one(key, image, chosen))(
        keys, images.astype(jnp.float32)
    )
    return truncate_to_bytes(corrupted) / 255


def _check_choice(option: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{option}: expected one of {', '.join(map(str, choices))}, got {value!r}")
