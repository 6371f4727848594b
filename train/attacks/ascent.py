"""Gradient ascent with book-keeping: one run of PGD or of APGD, which differ in the rule for the next point only."""

import math
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from train.attacks.ball import Ball
from train.attacks.search import Flags, Worst, rose, steps_before_tail
from train.attacks.victim import LossOf, Victim


class Climb(NamedTuple):
    """Where a climber is: points [B, H, W, C], their losses [B] and gradients [B, H, W, C]."""

    points: jax.Array
    loss: jax.Array
    gradient: jax.Array


class Rule(Protocol):
    """How to go on; pure, and traced once."""

    def start(self, points: jax.Array) -> Any:
        """The rule's own state before the first step."""

    def step(self, state: Any, number: jax.Array, here: Climb) -> tuple[Any, jax.Array]:
        """The state and the points after step `number`, counted from 0."""


def climb(
    victim: Victim, loss_of: LossOf, key: jax.Array, start: jax.Array, steps: int, rule: Rule
) -> tuple[Worst, Flags]:
    """One run, which visits the start and the points after each of the steps.

    Args:
      victim: the network.
      loss_of: what to raise.
      key: for the network's draws.
      start: the first points, [B, H, W, C].
      steps: gradients to take.
      rule: how to go on.

    Returns:
      The worst of all points visited, and the flags of the run.
    """
    tail = steps_before_tail(steps)

    def body(number: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        points, worst, highest, before_tail, flags, state = carry
        value, slope = victim.slope(loss_of, jax.random.fold_in(key, number), points)
        worst = worst.or_else(points, value)
        highest = jnp.maximum(highest, value.loss)
        before_tail = jnp.where(number <= tail, highest, before_tail)
        flags = flags._replace(
            zero_gradient=jnp.where(number == 0, slope.zero, flags.zero_gradient),
            bad_gradient=flags.bad_gradient | slope.bad,
        )
        state, points = rule.step(state, number, Climb(points, value.loss, slope.gradient))
        return points, worst, highest, before_tail, flags, state

    nothing = Worst.nothing(start)
    low = nothing.loss
    flags = Flags(nothing.wrong, nothing.wrong, nothing.wrong)
    carry = (start, nothing, low, low, flags, rule.start(start))
    points, worst, highest, before_tail, flags, _ = jax.lax.fori_loop(0, steps, body, carry)
    # After the last step nobody needs a gradient.
    value = victim.value(loss_of, jax.random.fold_in(key, steps), points)
    rising = rose(before_tail, jnp.maximum(highest, value.loss))
    return worst.or_else(points, value), flags._replace(still_rising=rising)


def random_start(keys: jax.Array, ball: Ball, *, touch: bool = False) -> jax.Array:
    """Uniform points of the ball around its centre, each from the key of its image.

    Args:
      keys: [B].
      ball: around images [B, H, W, C].
      touch: scale each offset so that its largest entry is epsilon, as APGD does.

    Returns:
      Points [B, H, W, C].
    """
    shape = ball.radius.shape[1:]

    def offset(key: jax.Array) -> jax.Array:
        # In one row: XLA takes five times as long to compile a draw of several axes.
        noise = jax.random.uniform(key, (math.prod(shape),), ball.radius.dtype, -1.0, 1.0)
        if touch:
            noise = noise / jnp.max(jnp.abs(noise))
        return noise.reshape(shape)

    return ball.clip(ball.centre + ball.radius * jax.vmap(offset)(keys))
