"""The network as an attack sees it: values, decisions and gradients, averaged over draws where it is random."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# (key, images [B, H, W, C]) -> logits [B, K]; the key is for random networks, others ignore it.
Logits = Callable[[jax.Array, jax.Array], jax.Array]
# logits [B, K] -> losses [B]
LossOf = Callable[[jax.Array], jax.Array]


class Value(NamedTuple):
    """What the network makes of some images.

    Attributes:
      loss: [B], the mean over the draws; minus infinity where it is not a number.
      wrong: bool [B], by the mean of the probabilities over the draws.
    """

    loss: jax.Array
    wrong: jax.Array


class Slope(NamedTuple):
    """The gradient of the loss.

    Attributes:
      gradient: [B, H, W, C], the mean over the draws; entries that are not finite count as zero.
      zero: bool [B], every entry is exactly zero.
      bad: bool [B], some entry was not finite.
    """

    gradient: jax.Array
    zero: jax.Array
    bad: jax.Array


@dataclasses.dataclass(frozen=True)
class Victim:
    """A network, the labels of a batch, and how often to draw.

    Attributes:
      logits: the network.
      labels: int [B].
      draws: forward passes, each with its own key, that make one value or one gradient.
    """

    logits: Logits
    labels: jax.Array
    draws: int

    def scores(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """What the decision is the argmax of: logits, or mean probabilities of several draws."""
        return self._mean(lambda k: _scores(self._forward(k, images), self.draws), key)

    def value(self, loss_of: LossOf, key: jax.Array, images: jax.Array) -> Value:
        """Loss and decision, with no gradient taken."""

        def one(draw_key: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits = self._forward(draw_key, images)
            return loss_of(logits), _scores(logits, self.draws)

        return self._value(*self._mean(one, key))

    def slope(self, loss_of: LossOf, key: jax.Array, images: jax.Array) -> tuple[Value, Slope]:
        """Loss, decision and gradient; with the same key, of the same draws as `value`."""

        def one(draw_key: jax.Array) -> tuple[jax.Array, ...]:
            def total(points: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
                logits = self._forward(draw_key, points)
                losses = loss_of(logits)
                return jnp.sum(losses), (losses, _scores(logits, self.draws))

            gradient, (losses, scores) = jax.grad(total, has_aux=True)(images)
            finite = jnp.isfinite(gradient)
            bad = jnp.any(~finite, axis=(1, 2, 3)).astype(losses.dtype)
            return losses, scores, jnp.where(finite, gradient, 0.0), bad

        losses, scores, gradient, bad_part = self._mean(one, key)
        bad = bad_part > 0
        zero = jnp.all(gradient == 0, axis=(1, 2, 3)) & ~bad
        return self._value(losses, scores), Slope(gradient, zero, bad)

    def is_wrong(self, scores: jax.Array) -> jax.Array:
        """Whether the decision differs from the label, [B]."""
        return jnp.argmax(scores, axis=-1) != self.labels

    def _value(self, losses: jax.Array, scores: jax.Array) -> Value:
        return Value(jnp.where(jnp.isnan(losses), -jnp.inf, losses), self.is_wrong(scores))

    def _forward(self, key: jax.Array, images: jax.Array) -> jax.Array:
        return self.logits(key, images).astype(jnp.float32)

    def _mean(self, one: Callable[[jax.Array], Any], key: jax.Array) -> Any:
        """The mean of `one` over the draws, one after the other, so that memory does not grow."""
        first = one(jax.random.fold_in(key, 0))
        if self.draws == 1:
            return first

        def add(draw: jax.Array, total: Any) -> Any:
            return jax.tree.map(jnp.add, total, one(jax.random.fold_in(key, draw)))

        # From zero, though the first is known: so the network is compiled into one place only.
        nothing = jax.tree.map(jnp.zeros_like, first)
        return jax.tree.map(
            lambda total: total / self.draws, jax.lax.fori_loop(0, self.draws, add, nothing)
        )


def _scores(logits: jax.Array, draws: int) -> jax.Array:
    # Rounding can make two probabilities equal whose logits differ: one draw decides by logits.
    return logits if draws == 1 else jax.nn.softmax(logits, axis=-1)
