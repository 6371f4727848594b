"""What attacks raise: losses of each example, which grow as the network comes to be wrong.

The logits are z [B, K] and the labels y; z_(1) >= z_(2) >= ... are the sorted logits of an image.

    ce        log sum_k exp(z_k) - z_y
    margin    max_{k != y} z_k - z_y, the negative of `margin`
    dlr       -(z_y - max_{k != y} z_k) / (z_(1) - z_(3))
    targeted  -(z_y - z_t) / (z_(1) - (z_(3) + z_(4)) / 2)

The last two (Croce and Hein 2020) do not change when the logits are scaled or shifted, so that a network cannot hide
its gradient by confidence alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

Loss = Callable[[jax.Array, jax.Array], jax.Array]

_DLR_CLASSES = 4
_TINY = 1e-12  # the denominator's least value, as in the authors' code


def ce(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Cross-entropy [B] of logits [B, K] at labels [B]."""
    return jax.nn.logsumexp(logits, axis=-1) - _pick(logits, labels)


def margin(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """z_y - max of the others, [B]: positive where the network is right. Square lowers it."""
    return _pick(logits, labels) - jnp.max(without(logits, labels), axis=-1)


def negative_margin(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The margin with the sign of a loss."""
    return -margin(logits, labels)


def dlr(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The difference of logits ratio, [B]; positive where the network is wrong."""
    highest, _, third, _ = _sorted_four(logits)
    return -margin(logits, labels) / (highest - third + _TINY)


def targeted_dlr(logits: jax.Array, labels: jax.Array, targets: jax.Array) -> jax.Array:
    """The difference of logits ratio towards the classes `targets` [B]."""
    highest, _, third, fourth = _sorted_four(logits)
    distance = _pick(logits, labels) - _pick(logits, targets)
    return -distance / (highest - (third + fourth) / 2 + _TINY)


LOSSES: dict[str, Loss] = {"ce": ce, "dlr": dlr, "margin": negative_margin}
TARGETED = "targeted"


def check_name(name: str, choices: tuple[str, ...]) -> None:
    """Raises for a loss that an attack does not have."""
    if name not in choices:
        raise ValueError(f"unknown loss {name!r}; choose one of {', '.join(choices)}")


def check_classes(name: str, classes: int) -> None:
    """Raises where a loss is not defined for so few classes."""
    if name in ("dlr", TARGETED) and classes < _DLR_CLASSES:
        raise ValueError(
            f"loss {name!r} compares sorted logits and needs at least {_DLR_CLASSES} classes,"
            f" the network has {classes}; use 'ce'"
        )


def other_classes(scores: jax.Array, labels: jax.Array, count: int) -> jax.Array:
    """The `count` classes [B, count] that score highest beside the label, in descending order."""
    return jax.lax.top_k(without(scores, labels), count)[1]


def without(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Logits with that of the label lowered to minus infinity."""
    return jnp.where(_is_class(logits, labels), -jnp.inf, logits)


def _sorted_four(logits: jax.Array) -> tuple[jax.Array, ...]:
    order = jax.lax.top_k(jax.lax.stop_gradient(logits), _DLR_CLASSES)[1]
    return tuple(_pick(logits, order[:, place]) for place in range(_DLR_CLASSES))


def _pick(logits: jax.Array, classes: jax.Array) -> jax.Array:
    # A masked sum: its gradient is a select, where that of indexing is a scatter across shards.
    return jnp.sum(jnp.where(_is_class(logits, classes), logits, 0.0), axis=-1)


def _is_class(logits: jax.Array, classes: jax.Array) -> jax.Array:
    return jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == classes[:, None]
