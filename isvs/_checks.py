"""What the public functions accept, and what they say when they get something else."""

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Beyond this a solve takes thousands of sweeps, and single precision no longer gets it right.
STIFFEST = 1e4


def images(value: Any) -> jax.Array:
    """Returns float images ``[..., H, W, C]`` as they are, or explains what is wrong with them."""
    array = jnp.asarray(value)
    if array.ndim < 3:
        raise ValueError(
            f"images must be [..., H, W, C] with at least 3 axes, got shape {array.shape}"
            + ("; add a channel axis: images[..., None]" if array.ndim == 2 else "")
        )
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(
            f"images must be floating point in [0, 1], got dtype {array.dtype}"
            + ("; divide by 255" if jnp.issubdtype(array.dtype, jnp.integer) else "")
        )
    if 0 in array.shape[-3:]:
        raise ValueError(f"images must have H, W, C >= 1, got shape {array.shape}")
    return array


def sparsity(value: Any, batch: tuple[int, ...]) -> jax.Array:
    """Returns float32 levels broadcast to the batch axes; levels outside [0, 1] fail where they are known."""
    known = _known("sparsity", value)
    _all_inside(
        known, (known >= 0) & (known <= 1), "sparsity must lie in [0, 1] (0 = flat, 1 = original)"
    )
    return _over_batch("sparsity", value, batch).astype(jnp.float32)


def stiffness(value: Any, batch: tuple[int, ...]) -> jax.Array | None:
    """Returns stiffness broadcast to the batch axes; None if it is known to be infinite everywhere.

    What is known and outside fails; what is traced is brought to the nearest end, but for infinity.
    """
    known = _known("stiffness", value)
    _all_inside(
        known,
        (known >= 0) & ((known <= STIFFEST) | np.isinf(known)),
        f"stiffness must lie in [0, {STIFFEST:g}] or be infinite (rigid)",
    )
    springs = _over_batch("stiffness", value, batch)
    if known.size and np.isinf(known).all():
        return None
    if known.size:
        return springs
    return jnp.where(springs == jnp.inf, springs, jnp.clip(springs, 0, STIFFEST))


def _known(name: str, value: Any) -> np.ndarray:
    """The numbers that are known already, float64; none of those that are traced or live elsewhere."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.ndarray, np.generic, jax.Array)
    ):
        raise TypeError(f"{name} must be a number or an array, got {type(value).__name__}")
    if isinstance(value, jax.core.Tracer) or not _is_local(value):
        return np.zeros(0)
    return np.asarray(value, np.float64)


def _all_inside(known: np.ndarray, inside: np.ndarray, expected: str) -> None:
    if not inside.all():  # NaN is outside
        worst = float(np.ravel(known)[np.ravel(~inside).argmax()])
        raise ValueError(f"{expected}, got {worst:g}")


def _over_batch(name: str, value: Any, batch: tuple[int, ...]) -> jax.Array:
    """The numbers for each image, float32 or finer."""
    array = jnp.asarray(value)
    array = array.astype(jnp.promote_types(array.dtype, jnp.float32))
    try:
        fits = np.broadcast_shapes(array.shape, batch) == batch
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must broadcast to the batch axes {batch} of the images, got shape {array.shape}"
        )
    return jnp.broadcast_to(array, batch)


def _is_local(value: Any) -> bool:
    return not isinstance(value, jax.Array) or value.is_fully_addressable


def links_shape(down: jax.Array, right: jax.Array) -> tuple[int, ...]:
    """The pixel shape ``[..., H, W]`` that two link masks describe."""
    for name, mask in (("down", down), ("right", right)):
        if mask.dtype != jnp.bool_:
            raise TypeError(f"{name} must be bool (True = tied), got dtype {mask.dtype}")
    expected = "expected down [..., H-1, W] and right [..., H, W-1] of one image size"
    got = f"got down {down.shape} and right {right.shape}"
    if down.ndim < 2 or right.ndim != down.ndim or down.shape[:-2] != right.shape[:-2]:
        raise ValueError(f"{expected}, {got}")
    height, width = right.shape[-2], down.shape[-1]
    if height < 1 or width < 1 or down.shape[-2] != height - 1 or right.shape[-1] != width - 1:
        raise ValueError(f"{expected}, {got}")
    return (*down.shape[:-2], height, width)


def choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Fails for an unknown name and lists the known ones."""
    known = sorted(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def positive(name: str, value: Any, *, above: float = 0.0) -> None:
    """Fails unless a number is finite and above a bound."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a Python number, got {type(value).__name__}")
    if not (math.isfinite(value) and value > above):
        raise ValueError(f"{name} must be above {above:g} and finite, got {value!r}")


def count(name: str, value: Any) -> None:
    """Fails unless a number is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a Python int, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
