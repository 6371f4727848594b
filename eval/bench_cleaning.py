"""What cleaning costs: finite ties, the speckle rule and the automatic level, beside `encode`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isvs
from eval.bench_table import Row, at_most
from eval.timing import compile_seconds, in_turn

_SIGMA = 0.06
_LEVEL, _STIFFNESS = 0.4, 5.0
_MICRO = 1e6


def rows(images: np.ndarray, rounds: int) -> list[Row]:
    """The time of each part and of the whole, on noisy images ``[B, H, W, C]``, against `encode`."""
    noise = np.random.default_rng(0).normal(scale=_SIGMA, size=images.shape)
    noisy = jnp.asarray(np.clip(images + noise, 0, 1), jnp.float32)
    encode, at = jax.jit(isvs.encode), jax.jit(isvs.ScaleSpace.at)
    space = encode(noisy)
    ours: dict[str, Callable[[], Any]] = {
        'smooth("auto")': functools.partial(jax.jit(isvs.smooth, static_argnums=1), noisy, "auto"),
        f"at({_LEVEL}, stiffness={_STIFFNESS:g})": lambda: at(space, _LEVEL, stiffness=_STIFFNESS),
        f"at({_LEVEL})": lambda: at(space, _LEVEL),
        "remove_speckle": functools.partial(jax.jit(isvs.remove_speckle), noisy),
        "noise_level": functools.partial(jax.jit(isvs.noise_level), noisy),
    }
    compiling = {name: compile_seconds(task) for name, task in ours.items()}
    seconds = in_turn({"encode": lambda: encode(noisy), **ours}, rounds)
    each = _MICRO / len(images)
    return [
        Row(
            f"{name} vs encode",
            "us/image",
            seconds[name] * each,
            seconds["encode"] * each,
            at_most(2) if "auto" in name else None,
            f"Batches of {len(images)} with Gaussian noise {_SIGMA}.",
            compiling[name],
        )
        for name in ours
    ]
