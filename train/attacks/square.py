"""The Square attack (Andriushchenko et al. 2020): random search that asks for values only, never for a gradient."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from train.attacks import losses, search
from train.attacks.ball import Ball, around
from train.attacks.victim import Logits, Value, Victim

# Queries, out of ten thousand, after which the squares have half the area.
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
_HALVINGS_OF = 10_000

_ValueAt = Callable[[jax.Array, jax.Array], Value]


class _Carry(NamedTuple):
    number: jax.Array  # of the query
    worst: search.Worst
    before_tail: jax.Array  # [B], the loss before the last tenth of the queries


@dataclasses.dataclass(frozen=True)
class Square:
    """The l-infinity form, which changes a square of pixels to +-epsilon if that lowers the margin.

    An image that is misclassified is left there, and the search ends when all are.

    Attributes:
      queries: values asked of the network, at most; the first is that of vertical stripes.
      initial_fraction: of the image's area that the first squares cover, in (0, 1].
      draws: keys over which values and decisions are averaged, for random networks.
    """

    queries: int = 5000
    initial_fraction: float = 0.8
    draws: int = 1

    def __post_init__(self) -> None:
        search.check_counts(queries=self.queries, draws=self.draws)
        if not 0 < self.initial_fraction <= 1:
            raise ValueError(f"expected initial_fraction in (0, 1], got {self.initial_fraction}")

    def __call__(
        self,
        logits: Logits,
        keys: jax.Array,
        images: jax.Array,
        labels: jax.Array,
        epsilon: ArrayLike,
    ) -> search.Outcome:
        """Attacks a batch; arguments and result as those of `PGD`, the loss the negative margin."""
        search.check_inputs(keys, images, labels)
        ball = around(images, epsilon)
        victim = Victim(logits, labels, self.draws)

        def value_at(key: jax.Array, points: jax.Array) -> Value:
            return victim.value(
                lambda outputs: losses.negative_margin(outputs, labels), key, points
            )

        clean = value_at(search.clean_key(keys), images)

        def run(number: jax.Array, run_keys: search.Keys) -> tuple[search.Worst, search.Flags]:
            return self._search(value_at, run_keys, ball, clean.wrong)

        return search.conclude(victim, keys, images, 1, clean, run)

    def _search(
        self, value_at: _ValueAt, keys: search.Keys, ball: Ball, done: jax.Array
    ) -> tuple[search.Worst, search.Flags]:
        tail = search.steps_before_tail(self.queries)

        def going(carry: _Carry) -> jax.Array:
            return (carry.number < self.queries) & jnp.any(~(carry.worst.wrong | done))

        def ask(carry: _Carry) -> _Carry:
            number, worst, before_tail = carry
            points = self._candidate(number, keys.images, ball, worst.images)
            value = value_at(jax.random.fold_in(keys.network, number), points)
            # What is found is not searched further, so that the others in the batch change nothing.
            frozen = worst.wrong | done
            found = search.choose(frozen, tuple(worst), tuple(worst.or_else(points, value)))
            worst = search.Worst(*found)
            before_tail = jnp.where(number < tail, worst.loss, before_tail)
            return _Carry(number + 1, worst, before_tail)

        nothing = search.Worst.nothing(_stripes(keys.images, ball))
        carry = _Carry(jnp.int32(0), nothing, nothing.loss)
        _, worst, before_tail = jax.lax.while_loop(going, ask, carry)
        never = jnp.zeros_like(worst.wrong)
        return worst, search.Flags(never, never, search.rose(before_tail, worst.loss))

    def _candidate(
        self, number: jax.Array, keys: jax.Array, ball: Ball, points: jax.Array
    ) -> jax.Array:
        """The points themselves for query 0, then with a square changed; all [B, H, W, C]."""
        height, width, channels = points.shape[1:]
        sides = side_lengths(self.initial_fraction, height, width)
        level = jnp.sum(jnp.asarray(halving_queries(self.queries)) <= number)
        side = jnp.asarray(sides)[level]
        keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
        draws = _uniform(keys, 2 + channels)
        row = _index(draws[:, 0], height - side + 1)
        column = _index(draws[:, 1], width - side + 1)
        signs = _signs(draws[:, None, None, 2:])  # [B, 1, 1, C]
        # A mask, since a slice could not have a side that is known only on the device.
        shape = (len(points), height, width, 1)
        down = jax.lax.broadcasted_iota(jnp.int32, shape, 1) - row
        along = jax.lax.broadcasted_iota(jnp.int32, shape, 2) - column
        inside = (down >= 0) & (down < side) & (along >= 0) & (along < side) & (number > 0)
        return jnp.where(inside, ball.clip(ball.centre + ball.radius * signs), points)


def _stripes(keys: jax.Array, ball: Ball) -> jax.Array:
    """Every column of every channel at +epsilon or -epsilon, [B, H, W, C]."""
    _, _, width, channels = ball.centre.shape
    # The queries from 1 on have the keys 1, 2, ...
    keys = jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)
    signs = _signs(_uniform(keys, width * channels)).reshape(-1, 1, width, channels)
    return ball.clip(ball.centre + ball.radius * signs)


def _uniform(keys: jax.Array, count: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.uniform(key, (count,)))(keys)  # [B, count]


def _signs(draws: jax.Array) -> jax.Array:
    return jnp.where(draws < 0.5, -1.0, 1.0)


def _index(draws: jax.Array, count: jax.Array) -> jax.Array:
    """Uniform integers below `count`, [B, 1, 1, 1], from uniform numbers [B]."""
    whole = jnp.floor(draws * count).astype(jnp.int32)
    return jnp.minimum(whole, count - 1)[:, None, None, None]


def halving_queries(queries: int) -> np.ndarray:
    """The queries from which on squares are smaller, for a budget; int [9]."""
    return np.array([-(-number * queries // _HALVINGS_OF) for number in _HALVINGS], np.int32)


def side_lengths(fraction: float, height: int, width: int) -> np.ndarray:
    """The sides in pixels before the first halving of the area, after it, and so on; int [10]."""
    areas = [fraction * height * width / 2**level for level in range(len(_HALVINGS) + 1)]
    sides = [min(max(round(math.sqrt(area)), 1), height, width) for area in areas]
    return np.array(sides, np.int32)
