"""Projected gradient ascent within an l-infinity ball: FGSM, PGD, and the short form that training uses."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from train.attacks import losses, search
from train.attacks.ascent import Climb, climb, random_start
from train.attacks.ball import Ball, around
from train.attacks.victim import Logits, Victim


@dataclasses.dataclass(frozen=True)
class PGD:
    """Projected gradient descent (Madry et al. 2018): x <- clip(x + step * sign(gradient)).

    Attributes:
      steps: gradients in each run.
      step_size: as a fraction of epsilon; None for 2.5 / steps.
      restarts: runs, each from its own random start; the worst for each image is kept.
      random_start: start at a uniform point of the ball, else at the image.
      loss: "ce", "dlr" or "margin".
      draws: keys over which gradients, losses and decisions are averaged, for random networks.
    """

    steps: int = 10
    step_size: float | None = None
    restarts: int = 1
    random_start: bool = True
    loss: str = "ce"
    draws: int = 1

    def __post_init__(self) -> None:
        search.check_counts(steps=self.steps, restarts=self.restarts, draws=self.draws)
        losses.check_name(self.loss, tuple(losses.LOSSES))
        if self.step_size is not None and not self.step_size > 0:
            raise ValueError(f"expected step_size above 0, got {self.step_size}")

    def __call__(
        self,
        logits: Logits,
        keys: jax.Array,
        images: jax.Array,
        labels: jax.Array,
        epsilon: ArrayLike,
    ) -> search.Outcome:
        """Attacks a batch.

        Args:
          logits: (key, images) -> logits [B, K].
          keys: one typed key for each image, [B].
          images: [B, H, W, C] in [0, 1].
          labels: int [B].
          epsilon: radius in pixels, a scalar or [C]; may be traced.

        Returns:
          The outcome.
        """
        search.check_inputs(keys, images, labels)
        ball = around(images, epsilon)
        victim = Victim(logits, labels, self.draws)
        loss = losses.LOSSES[self.loss]

        def loss_of(outputs: jax.Array) -> jax.Array:
            losses.check_classes(self.loss, outputs.shape[-1])
            return loss(outputs, labels)

        stride = 2.5 / self.steps if self.step_size is None else self.step_size
        rule = _SignStep(ball, stride)

        def run(number: jax.Array, run_keys: search.Keys) -> tuple[search.Worst, search.Flags]:
            start = random_start(run_keys.images, ball) if self.random_start else images
            return climb(victim, loss_of, run_keys.network, start, self.steps, rule)

        clean = victim.value(loss_of, search.clean_key(keys), images)
        return search.conclude(victim, keys, images, self.restarts, clean, run)


def fgsm(draws: int = 1) -> PGD:
    """The fast gradient sign method (Goodfellow et al. 2015): one full step from the image."""
    return PGD(steps=1, step_size=1.0, random_start=False, draws=draws)


class _SignStep(NamedTuple):
    """A step of fixed length along the sign of the gradient."""

    ball: Ball
    stride: float  # as a fraction of epsilon

    def start(self, points: jax.Array) -> tuple[()]:
        return ()

    def step(self, state: tuple[()], number: jax.Array, here: Climb) -> tuple[tuple[()], jax.Array]:
        move = self.stride * self.ball.radius * jnp.sign(here.gradient)
        return state, self.ball.clip(here.points + move)


def perturb(
    loss_of: Callable[[jax.Array], jax.Array],
    key: jax.Array,
    images: jax.Array,
    *,
    epsilon: ArrayLike,
    step_size: ArrayLike,
    steps: int,
    random_start: bool = True,
) -> jax.Array:
    """PGD for training: the last point, with none of the book-keeping of an evaluation.

    Args:
      loss_of: images [B, H, W, C] -> losses [B], to be raised.
      key: one key for the batch; used by the random start only.
      images: [B, H, W, C] in [0, 1].
      epsilon: radius in pixels, a scalar or [C].
      step_size: in pixels, a scalar or [C].
      steps: number of gradients taken.
      random_start: start at a uniform point of the ball, else at the images.

    Returns:
      Images [B, H, W, C] in the ball and in [0, 1], through which no gradient flows.
    """
    images = jax.lax.stop_gradient(images)
    ball = around(images, epsilon)
    gradient = jax.grad(lambda points: jnp.sum(loss_of(points)))
    stride = jnp.broadcast_to(jnp.asarray(step_size, images.dtype), images.shape)

    def step(_: jax.Array, points: jax.Array) -> jax.Array:
        # A sign of NaN would spoil the image for good; no step at such a pixel.
        direction = jnp.nan_to_num(jnp.sign(gradient(points)))
        return ball.clip(points + stride * direction)

    start = images
    if random_start:
        noise = jax.random.uniform(key, images.shape, images.dtype, -1.0, 1.0)
        start = ball.clip(images + ball.radius * noise)
    return jax.lax.stop_gradient(jax.lax.fori_loop(0, steps, step, start))
