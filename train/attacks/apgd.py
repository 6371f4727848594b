"""APGD (Croce and Hein 2020, "Reliable evaluation of adversarial robustness"): PGD that sets its own step size."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from train.attacks import losses, search
from train.attacks.ascent import Climb, climb, random_start
from train.attacks.ball import Ball, around
from train.attacks.victim import Logits, LossOf, Victim

_MOMENTUM = 0.75  # the share of the new step; the rest continues the last one
_RHO = 0.75  # fewer rising steps than this share halve the step
_FIRST_STEP = 2.0  # in epsilons
_CHOICES = ("ce", "dlr", losses.TARGETED)


@dataclasses.dataclass(frozen=True)
class APGD:
    """Auto-PGD with the parameters of the paper; the step size of each image is its own.

    Attributes:
      steps: gradients in each run.
      restarts: runs (for each target), each from its own random start.
      loss: "ce", "dlr" or "targeted".
      targets: classes aimed at one after the other, by descending logit; for "targeted" only, and no more than there
        are other classes.
      draws: keys over which gradients, losses and decisions are averaged, for random networks.
    """

    steps: int = 100
    restarts: int = 1
    loss: str = "ce"
    targets: int = 9
    draws: int = 1

    def __post_init__(self) -> None:
        search.check_counts(
            steps=self.steps, restarts=self.restarts, targets=self.targets, draws=self.draws
        )
        losses.check_name(self.loss, _CHOICES)

    def __call__(
        self,
        logits: Logits,
        keys: jax.Array,
        images: jax.Array,
        labels: jax.Array,
        epsilon: ArrayLike,
    ) -> search.Outcome:
        """Attacks a batch; arguments and result as those of `PGD`."""
        search.check_inputs(keys, images, labels)
        ball = around(images, epsilon)
        victim = Victim(logits, labels, self.draws)
        scores = victim.scores(search.clean_key(keys), images)  # [B, K]
        losses.check_classes(self.loss, scores.shape[-1])
        aims = losses.other_classes(scores, labels, min(self.targets, scores.shape[-1] - 1))
        runs = self.restarts * (aims.shape[1] if self.loss == losses.TARGETED else 1)

        def loss_of_run(number: jax.Array | int) -> LossOf:
            if self.loss != losses.TARGETED:
                return lambda outputs: losses.LOSSES[self.loss](outputs, labels)
            target = jnp.take(aims, number % aims.shape[1], axis=1)  # [B]
            return lambda outputs: losses.targeted_dlr(outputs, labels, target)

        def run(number: jax.Array, run_keys: search.Keys) -> tuple[search.Worst, search.Flags]:
            start = random_start(run_keys.images, ball, touch=True)
            rule = _AdaptiveStep(ball, self.steps)
            return climb(victim, loss_of_run(number), run_keys.network, start, self.steps, rule)

        clean = victim.value(loss_of_run(0), search.clean_key(keys), images)
        return search.conclude(victim, keys, images, runs, clean, run)


def checkpoints(steps: int) -> list[int]:
    """The steps w_j = ceil(p_j steps) after which the step size is looked at (eq. 3 of the paper).

    p_1 = 0.22, and the distances p_j - p_(j-1) shorten by 0.03 down to 0.06.
    """
    # Hundredths, because 0.41 * 100 in floating point may be more than 41.
    found, place, distance = [], 22, 22
    while place < 100:
        found.append(-(-place * steps // 100))
        distance = max(distance - 3, 6)
        place += distance
    return sorted(set(found))


class _State(NamedTuple):
    """What the rule remembers; the first three are of the point with the highest loss so far."""

    best_points: jax.Array  # [B, H, W, C]
    best_gradient: jax.Array  # [B, H, W, C]
    best_loss: jax.Array  # [B]
    before: jax.Array  # [B, H, W, C], the points one step ago
    loss_before: jax.Array  # [B]
    step_size: jax.Array  # [B], in epsilons
    rises: jax.Array  # int [B], steps since the last checkpoint that raised the loss
    checked_loss: jax.Array  # [B], the best loss at the last checkpoint
    halved: jax.Array  # bool [B], at the last checkpoint


class _AdaptiveStep(NamedTuple):
    """Algorithm 1 of the paper."""

    ball: Ball
    steps: int

    def start(self, points: jax.Array) -> _State:
        nothing = search.Worst.nothing(points)
        low = nothing.loss
        return _State(
            best_points=points,
            best_gradient=jnp.zeros_like(points),
            best_loss=low,
            before=points,
            loss_before=-low,  # so that the first point does not count as a rise
            step_size=jnp.full_like(low, _FIRST_STEP),
            rises=jnp.zeros_like(low, dtype=jnp.int32),
            checked_loss=low,
            halved=nothing.wrong,
        )

    def step(self, state: _State, number: jax.Array, here: Climb) -> tuple[_State, jax.Array]:
        improved = here.loss > state.best_loss
        best = search.choose(
            improved,
            (here.points, here.gradient, here.loss),
            (state.best_points, state.best_gradient, state.best_loss),
        )
        state = state._replace(
            best_points=best[0],
            best_gradient=best[1],
            best_loss=best[2],
            rises=state.rises + (here.loss > state.loss_before),
            # The paper's first interval begins at the start itself.
            checked_loss=jnp.where(number == 0, best[2], state.checked_loss),
        )
        state, here = self._check(state, number, here)
        points = self._move(state, number, here)
        return state._replace(before=here.points, loss_before=here.loss), points

    def _check(self, state: _State, number: jax.Array, here: Climb) -> tuple[_State, Climb]:
        """At a checkpoint, halves the steps that are too long and goes back to the best point."""
        places = checkpoints(self.steps)
        lengths = np.zeros(self.steps + 1, np.int32)  # of the interval that ends at a step
        lengths[places] = np.diff([0, *places])
        length = jnp.asarray(lengths)[number]
        few_rises = state.rises < _RHO * length
        stuck = ~state.halved & (state.best_loss == state.checked_loss)
        at_checkpoint = length > 0
        halve = at_checkpoint & (few_rises | stuck)
        back = search.choose(
            halve, (state.best_points, state.best_loss, state.best_gradient), tuple(here)
        )
        state = state._replace(
            step_size=jnp.where(halve, state.step_size / 2, state.step_size),
            rises=jnp.where(at_checkpoint, 0, state.rises),
            checked_loss=jnp.where(at_checkpoint, state.best_loss, state.checked_loss),
            halved=jnp.where(at_checkpoint, halve, state.halved),
        )
        return state, Climb(*back)

    def _move(self, state: _State, number: jax.Array, here: Climb) -> jax.Array:
        stride = state.step_size[:, None, None, None] * self.ball.radius
        ahead = self.ball.clip(here.points + stride * jnp.sign(here.gradient))
        # The first step has none before it to continue.
        new_share = jnp.where(number == 0, 1.0, _MOMENTUM).astype(here.points.dtype)
        return self.ball.clip(
            here.points
            + new_share * (ahead - here.points)
            + (1 - new_share) * (here.points - state.before)
        )
