"""The columns: clean images and three kinds of noise, at the benchmark's strengths or at those for fitting."""

import functools
import json
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from eval import corruptions
from eval.corruptions import noise
from eval.corruptions.filters import truncate_to_bytes
from eval.suites.base import image_keys, pixels

CLEAN = "clean"
NOISES = ("gaussian_noise", "shot_noise", "impulse_noise")
SEED = 0  # that of `eval.main`, unless it is told otherwise

# Peers are fitted at strengths like the benchmark's, none of which it has (`corruptions.constants`).
FITTING: dict[str, tuple[float, ...]] = {
    "gaussian_noise": (0.05, 0.07, 0.11),
    "shot_noise": (350, 150, 60),
    "impulse_noise": (0.015, 0.04, 0.06),
}
_NOISE: dict[str, Callable[[jax.Array, jax.Array, float], jax.Array]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
}


def column(name: str, strength: float) -> str:
    """The name of a column: that of the noise, and its severity or constant."""
    return f"{name} {strength:g}"


BENCHMARK = (CLEAN, *(column(name, level) for name in NOISES for level in corruptions.SEVERITIES))


def salt(name: str, severity: int) -> str:
    """What the suite `corruptions` draws its noise by; the tests hold the two together."""
    return json.dumps(["corruptions", name, severity, None, None, False, None])


def noisy(images: jax.Array, rows: np.ndarray, name: str, severity: int) -> jax.Array:
    """One column of the table, with the noise of `eval.main`.

    Args:
        images: float [B, H, W, C] in [0, 1].
        rows: int32 [B], of the images in the test split.
        name: of `NOISES`.
        severity: 1 to 5.
    """
    return corruptions.corrupt(
        image_keys(SEED, salt(name, severity), jnp.asarray(rows)),
        images,
        name=name,
        severity=severity,
        constants=corruptions.constants_for(images.shape[1]),
    )


def benchmark(images: jax.Array | np.ndarray, rows: np.ndarray) -> dict[str, jax.Array]:
    """The columns of the table.

    Args:
        images: uint8 [B, H, W, C].
        rows: int32 [B], of the images in the test split.

    Returns:
        float32 [B, H, W, C] in [0, 1] for each of `BENCHMARK`.
    """
    clean = pixels(jnp.asarray(images))
    return {CLEAN: clean} | {
        column(name, severity): noisy(clean, rows, name, severity)
        for name in NOISES
        for severity in corruptions.SEVERITIES
    }


def fitting(images: jax.Array | np.ndarray, rows: np.ndarray) -> dict[str, jax.Array]:
    """The columns by which strengths are chosen; arguments as of `benchmark`, in the training split."""
    clean = pixels(jnp.asarray(images))
    columns = {CLEAN: clean}
    for name, strengths in FITTING.items():
        for strength in strengths:
            key = column(name, strength)
            keys = image_keys(SEED, f"fitting {key}", jnp.asarray(rows))
            columns[key] = _corrupt(keys, clean, name, strength)
    return columns


@functools.partial(jax.jit, static_argnums=(2, 3))
def _corrupt(keys: jax.Array, images: jax.Array, name: str, strength: float) -> jax.Array:
    noisy = jax.vmap(lambda key, image: _NOISE[name](key, image, strength))(keys, images)
    return truncate_to_bytes(noisy) / 255
