"""Everything that a training run remembers from one step to the next."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx


class TrainState(NamedTuple):
    """The state of a run; which images come next follows from `step` and the seed alone."""

    step: jax.Array  # int32, the number of updates made
    params: nnx.State
    stats: nnx.State  # running averages of batch normalisation
    opt_state: Any
    average: tuple[nnx.State, nnx.State] | None  # slow averages of params and stats
    key: jax.Array  # of the run; a step folds its number in
    method: Any  # the method's own

    @property
    def weights(self) -> tuple[nnx.State, nnx.State]:
        """Params and stats to evaluate and to write: the slow averages where they are kept."""
        return (self.params, self.stats) if self.average is None else self.average


def create(
    params: nnx.State,
    stats: nnx.State,
    *,
    opt_state: Any,
    method_state: Any,
    seed: int,
    averaged: bool,
) -> TrainState:
    """The state before the first step.

    Args:
        params: trainable.
        stats: running averages.
        opt_state: of the optimiser.
        method_state: of the method.
        seed: of augmentation and methods.
        averaged: whether to keep slow averages.
    """
    copies = jax.tree.map(jnp.copy, (params, stats)) if averaged else None
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        stats=stats,
        opt_state=opt_state,
        average=copies,
        key=jax.random.key(seed),
        method=method_state,
    )
