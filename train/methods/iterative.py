"""`iterative`: smoothing and weights advance together (the paper's Eq. 8), in two forms.

`path` reads each image's stored scale space at a level that rises with the steps. `lbi` is the
equation literally: every image has its own iteration, which goes on when the image is visited.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

import isvs
from isvs import grid, lbi
from isvs.batching import map_blocks
from train.methods.base import Batch, Method, Predict, Spec, rising_level
from train.methods.smoothed import Smoothed, smoothing_options

if TYPE_CHECKING:
    from train.config import Config

# An image that has not reached the first level by then, an almost flat one, starts from where it is.
_LONGEST_FIRST_VISIT = 3000


@dataclasses.dataclass(frozen=True)
class IterativePath(Smoothed):
    """Levels by schedule, from codes.

    Attributes:
        sparsity_from: the level at step 0; at the last step it is `sparsity`.
        total_steps: of the training.
    """

    sparsity_from: float
    total_steps: int

    def metrics(self, state: Any, step: jax.Array) -> dict[str, jax.Array]:
        """The level."""
        return {"level": self.level(step)}

    def level(self, step: jax.Array) -> jax.Array:
        """The scheduled level."""
        return rising_level(step, self.total_steps, self.sparsity_from, self.sparsity)


class Iterations(NamedTuple):
    """Where the iteration of every training image is; all zero before its first visit."""

    u: jax.Array  # [N, C, H, W]
    down: jax.Array  # z on the edges down, [N, C, H-1, W]
    right: jax.Array  # z on the edges right, [N, C, H, W-1]


@dataclasses.dataclass(frozen=True)
class IterativeLBI(Method):
    """Levels by the iteration itself.

    A visit takes an image `steps` further. The first one takes it to `sparsity_from` before. An
    image whose support has reached `sparsity` stays there.

    Attributes:
        sparsity_from: the level that the first visit reaches.
        steps: of the iteration, each time an image is visited.
        solver: the iteration's settings.
    """

    sparsity_from: float
    steps: int
    solver: isvs.LBI = dataclasses.field(default_factory=isvs.LBI)
    resident_only = True

    def init(self, spec: Spec) -> Iterations:
        """``u = z = 0`` for every image."""
        height, width, channels = spec.image_shape
        count = spec.num_train
        return Iterations(
            jnp.zeros((count, channels, height, width), jnp.float32),
            jnp.zeros((count, channels, height - 1, width), jnp.float32),
            jnp.zeros((count, channels, height, width - 1), jnp.float32),
        )

    def view(
        self, state: Any, key: jax.Array, step: jax.Array, batch: Batch, predict: Predict
    ) -> tuple[jax.Array, Any]:
        """Advances the images of the batch and shows their projections."""
        rows = batch["index"]
        now = jax.tree.map(lambda a: a.at[rows].get(mode="promise_in_bounds"), state)
        after: Iterations = map_blocks(
            self._visit, batch["image"], *now, block_pixels=self.solver.block_pixels
        )
        state = jax.tree.map(
            # No row comes twice in an epoch.
            lambda all_rows, new: all_rows.at[rows].set(
                new, mode="promise_in_bounds", unique_indices=True
            ),
            state,
            after,
        )
        labels = isvs.connected_components(
            ~lbi.in_support(after.down), ~lbi.in_support(after.right)
        )
        return isvs.component_means(jnp.moveaxis(after.u, 1, -1), labels), state

    def _visit(self, x: jax.Array, *now: jax.Array) -> Iterations:
        """One visit to images ``[b, C, H, W]`` whose iterations are `now`."""
        state = jax.vmap(self._resume)(Iterations(*now))
        # A black image never leaves zero: it has no first visit.
        fresh = jnp.all(state.u == 0, axis=(1, 2, 3)) & jnp.any(x > 0, axis=(1, 2, 3))  # [b]

        def going(state: lbi.State, number: jax.Array) -> jax.Array:
            level = _level(state)
            starts = fresh & (level < self.sparsity_from) & (number < _LONGEST_FIRST_VISIT)
            return starts | ((level < self.sparsity) & (number < self.steps))

        def advance(carry: tuple[lbi.State, jax.Array, jax.Array]) -> Any:
            state, number, moves = carry
            ahead = jax.vmap(lambda s, x: lbi.step(s, x, self.solver))(state, x)
            moving = moves[:, None, None, None]
            state = jax.tree.map(lambda new, old: jnp.where(moving, new, old), ahead, state)
            return state, number + 1, going(state, number + 1)

        number = jnp.zeros((), jnp.int32)
        state, _, _ = jax.lax.while_loop(
            lambda carry: jnp.any(carry[2]), advance, (state, number, going(state, number))
        )
        return Iterations(state.u, state.down, state.right)

    def _resume(self, now: Iterations) -> lbi.State:
        potential = now.u + self.solver.kappa * grid.adjoint(now.down, now.right)
        return lbi.State(now.u, potential, now.down, now.right)


def _level(state: lbi.State) -> jax.Array:
    """The share of edges in the support, ``[b]``."""
    return lbi.support_size(state) / grid.edge_count(*state.u.shape[2:])


def make(config: "Config", steps_per_epoch: int) -> Method:
    """Iterative training in the form of `--iterate`."""
    assert config.sparsity is not None and config.sparsity_from is not None
    assert config.epochs is not None
    if config.iterate == "path":
        return IterativePath(
            config.sparsity,
            config.sparsity_from,
            config.epochs * steps_per_epoch,
            **smoothing_options(config),
        )
    assert config.lbi_steps is not None
    return IterativeLBI(config.sparsity, config.sparsity_from, config.lbi_steps)
