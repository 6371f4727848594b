"""Random weights: noise added to every kernel in every forward pass, with learned amplitudes.

A noisy model is the same model with one parameter more beside each kernel, `noise_scale`; the
modules stay as they are. `train.models.apply` adds the noise to its own copy of the kernels.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

Granularity = Literal["layer", "channel", "element"]

NOISE_SCALE = "noise_scale"
_INITIAL = 0.25  # of the kernel's own standard deviation


def make_noisy(model: nnx.Module, granularity: Granularity) -> None:
    """Puts amplitudes beside all kernels of convolutions and linear layers.

    Args:
        model: changed in place; `train.models.apply` then runs it only with a key.
        granularity: one amplitude for a "layer" [1], for each output "channel" [out], or for each
            "element" (the kernel's shape).
    """
    if granularity not in get_args(Granularity):
        raise ValueError(f"granularity: expected one of {get_args(Granularity)}, got {granularity}")
    for module, kernel in _kernels(model):
        shape = {"layer": (1,), "channel": kernel.shape[-1:], "element": kernel.shape}[granularity]
        setattr(module, NOISE_SCALE, nnx.Param(jnp.full(shape, _INITIAL, jnp.float32)))


def is_noisy(model: nnx.Module) -> bool:
    """Whether the model went through `make_noisy`."""
    return any(hasattr(module, NOISE_SCALE) for module, _ in _kernels(model))


def add_noise(model: nnx.Module, key: jax.Array) -> None:
    """Adds ``a eta, eta ~ N(0, std(w)^2)`` to every kernel in place; std(w) counts as a constant.

    Args:
        model: a noisy one, and a copy that may be spoilt.
        key: all kernels share one long draw, which compiles many times faster than one for each.
    """
    kernels = _kernels(model)
    ends = np.cumsum([kernel.size for _, kernel in kernels])
    draws = jnp.split(jax.random.normal(key, (int(ends[-1]),), jnp.float32), ends[:-1])
    for (module, kernel), draw in zip(kernels, draws, strict=True):
        weights = kernel[...]
        scale = getattr(module, NOISE_SCALE)[...]
        scale = scale.reshape((1,) * (weights.ndim - scale.ndim) + scale.shape)
        deviation = jax.lax.stop_gradient(jnp.std(weights))
        kernel[...] = weights + scale * deviation * draw.reshape(weights.shape)


def _kernels(model: nnx.Module) -> list[tuple[nnx.Module, nnx.Param]]:
    """All modules that have a kernel, and their kernels, in the order of their paths."""
    found = []
    for _, module in nnx.iter_modules(model):
        kernel = getattr(module, "kernel", None)
        if isinstance(kernel, nnx.Param):
            found.append((module, kernel))
    return found
