"""What all attacks share: the checks, the worst point found so far, repeated runs, and the final decision."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from train.attacks.victim import Value, Victim

# Streams of randomness: the network's before the runs, after them and in them, then the images' own, run by run.
_CLEAN, _FRESH, _NETWORK, _FIRST_RUN = 0, 1, 2, 3

_RISE = 1e-3  # a loss that rises by less has settled,
_RELATIVE_RISE = 1e-2  # and so has one that rises by less than this part of itself


class Outcome(NamedTuple):
    """Of one attack on one batch.

    Attributes:
      images: [B, H, W, C], the worst found, inside the ball and [0, 1].
      right: bool [B], still classified rightly there; for random networks by the mean of the probabilities over draws
        that the attack has not seen.
      loss: [B], the attack's loss there, which the attack raises.
      zero_gradient: bool [B], the gradient was exactly zero at the first point (False for Square).
      bad_gradient: bool [B], the gradient was not finite at some step; such entries count as zero.
      still_rising: bool [B], the highest loss rose by more than 1 % of itself, and by more than 0.001, in the last
        tenth of the steps: a longer attack might do better.
    """

    images: jax.Array
    right: jax.Array
    loss: jax.Array
    zero_gradient: jax.Array
    bad_gradient: jax.Array
    still_rising: jax.Array


class Worst(NamedTuple):
    """The worst point found: one that is misclassified beats any other, then the higher loss."""

    images: jax.Array  # [B, H, W, C]
    wrong: jax.Array  # bool [B]
    loss: jax.Array  # [B]

    @classmethod
    def nothing(cls, images: jax.Array) -> "Worst":
        """Before the first value is known."""
        loss = jnp.full_like(images[:, 0, 0, 0], -jnp.inf, dtype=jnp.float32)
        return cls(images, loss > 0, loss)

    def beaten_by(self, wrong: jax.Array, loss: jax.Array) -> jax.Array:
        """Where another point is worse for the network, [B]."""
        return (wrong & ~self.wrong) | ((wrong == self.wrong) & (loss > self.loss))

    def or_else(self, images: jax.Array, value: Value) -> "Worst":
        """The worse of this and other points, image by image."""
        beaten = self.beaten_by(value.wrong, value.loss)
        return Worst(*choose(beaten, (images, value.wrong, value.loss), tuple(self)))


class Flags(NamedTuple):
    """Of a run; each bool [B], as in `Outcome`."""

    zero_gradient: jax.Array
    bad_gradient: jax.Array
    still_rising: jax.Array


class Keys(NamedTuple):
    """Keys of one run: one for each image [B], and one for the network."""

    images: jax.Array
    network: jax.Array


# (number of the run, its keys) -> what it found
Run = Callable[[jax.Array, Keys], tuple[Worst, Flags]]


def choose(
    condition: jax.Array, chosen: tuple[jax.Array, ...], other: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """`chosen` where the condition [B] holds, else `other`; arrays with a leading axis [B]."""
    return tuple(
        jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
        for a, b in zip(chosen, other, strict=True)
    )


def rose(earlier: jax.Array, later: jax.Array) -> jax.Array:
    """Whether a loss [B] rose by more than what counts as settled."""
    return later - earlier > jnp.maximum(_RISE, _RELATIVE_RISE * jnp.abs(earlier))


def steps_before_tail(steps: int) -> int:
    """How many steps come before the last tenth, which is one step at the least."""
    return steps - max(1, steps // 10)


def check_inputs(keys: jax.Array, images: jax.Array, labels: jax.Array) -> None:
    """Raises for a batch that no attack can take."""
    if images.ndim != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"expected images [B, H, W, C] in floating point, got {images.shape=} {images.dtype=}"
        )
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) or keys.shape != images.shape[:1]:
        raise ValueError(
            f"expected one typed key for each of {images.shape[0]} images, got {keys.shape=}"
            f" {keys.dtype=}"
        )
    if labels.shape != images.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"expected one integer label for each of {images.shape[0]} images, got"
            f" {labels.shape=} {labels.dtype=}"
        )


def check_counts(**counts: int) -> None:
    """Raises for an option that must be 1 or more and is not."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"expected {name} of at least 1, got {count}")


def keys_of(keys: jax.Array, run: jax.Array) -> Keys:
    """The keys of run number `run`.

    An image's own key makes its random start, whatever batch it is in. The network's key is one for all, since noise on
    weights is drawn for a batch; it comes from the first image's.
    """
    network = jax.random.fold_in(jax.random.fold_in(keys[0], _NETWORK), run)
    return Keys(jax.vmap(lambda key: jax.random.fold_in(key, _FIRST_RUN + run))(keys), network)


def clean_key(keys: jax.Array) -> jax.Array:
    """The network's key for the images as they came."""
    return jax.random.fold_in(keys[0], _CLEAN)


def conclude(
    victim: Victim, keys: jax.Array, images: jax.Array, runs: int, clean: Value, run: Run
) -> Outcome:
    """The worst of several runs, and the decision there.

    Args:
      victim: the network and the labels.
      keys: [B].
      images: the clean images [B, H, W, C].
      runs: how many.
      clean: loss and decision at the clean images. Where that is wrong already the attack has won, and goes on to a
        worse point: a defence that is put before the network afterwards may have put the clean image right.
      run: one run.

    Returns:
      The outcome.
    """

    def again(number: jax.Array, found: tuple[Worst, Flags]) -> tuple[Worst, Flags]:
        worst, flags = found
        other, other_flags = run(number, keys_of(keys, number))
        beaten = worst.beaten_by(other.wrong, other.loss)
        rising = jnp.where(beaten, other_flags.still_rising, flags.still_rising)
        first = number == 0
        zero = jnp.where(first, other_flags.zero_gradient, flags.zero_gradient)
        bad = flags.bad_gradient | other_flags.bad_gradient
        return Worst(*choose(beaten, tuple(other), tuple(worst))), Flags(zero, bad, rising)

    never = jnp.zeros_like(clean.wrong)
    start = Worst(images, clean.wrong, clean.loss), Flags(never, never, never)
    worst, flags = jax.lax.fori_loop(0, runs, again, start)
    fresh = jax.random.fold_in(keys[0], _FRESH)
    right = ~victim.is_wrong(victim.scores(fresh, worst.images)) & ~clean.wrong
    return Outcome(
        worst.images,
        right,
        worst.loss,
        flags.zero_gradient,
        flags.bad_gradient,
        flags.still_rising & ~clean.wrong,
    )
