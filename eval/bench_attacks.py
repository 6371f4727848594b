"""The benchmark of the attacks: a step of each, against a loop in Python, and what smoothing adds to it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import isvs
from eval.bench_table import Row, at_most
from eval.photographs import photographs
from eval.timing import in_turn
from train import attacks, models
from train.attacks import losses

_SIDE = 32
_EPSILON = 8 / 255
_SPARSITY = 0.6
# The loops in Python do the same passes through the network, and less besides.
_TARGET = at_most(1.1)


@dataclasses.dataclass(frozen=True)
class _Sizes:
    model: str
    batch: int
    steps: int  # of PGD and APGD
    queries: int
    rounds: int


_FULL = _Sizes("resnet20", 64, 10, 10, 3)
_QUICK = _Sizes("_tiny", 16, 2, 3, 2)


@dataclasses.dataclass(frozen=True)
class _Setting:
    """A network of random weights, and a batch that it is right about."""

    logits: attacks.Logits
    keys: jax.Array
    images: jax.Array
    labels: jax.Array


def run(quick: bool) -> list[Row]:
    """All rows of the table."""
    sizes = _QUICK if quick else _FULL
    setting = _setting(sizes)
    pgd, apgd = attacks.PGD(steps=sizes.steps), attacks.APGD(steps=sizes.steps)
    # Squares of size zero never fool the network, so that every query is asked.
    square = _jitted(attacks.Square(queries=sizes.queries), setting, epsilon=0.0)
    smoothed = dataclasses.replace(
        setting, logits=lambda key, x: setting.logits(key, isvs.smooth(x, _SPARSITY))
    )
    tasks = {
        "pgd": _jitted(pgd, setting),
        "apgd": _jitted(apgd, setting),
        "ascent in python": _python_ascent(setting, sizes.steps),
        "square": square,
        "search in python": _python_search(setting, sizes.queries),
        "smoothed": _jitted(pgd, smoothed),
    }
    seconds = in_turn(tasks, sizes.rounds)
    steps, queries = (1000 / (sizes.batch * count) for count in (sizes.steps, sizes.queries))
    where = f"{sizes.model}, batch {sizes.batch}, {_SIDE}x{_SIDE}"
    loop = f"{where}; {sizes.steps} steps; peer: a loop in Python over a jitted gradient step."
    return [
        Row(
            f"{name}, for an image and step",
            "ms",
            seconds[task] * steps,
            seconds["ascent in python"] * steps,
            target=_TARGET,
            note=loop + " Ours also finds the worst point and decides there.",
        )
        for name, task in (("PGD", "pgd"), ("APGD-CE", "apgd"))
    ] + [
        Row(
            "Square, for an image and query",
            "ms",
            seconds["square"] * queries,
            seconds["search in python"] * queries,
            target=_TARGET,
            note=f"{where}; {sizes.queries} queries; peer: squares drawn in NumPy, a jitted margin.",
        ),
        Row(
            f"PGD through smoothing at {_SPARSITY}, for an image and step",
            "ms",
            seconds["smoothed"] * steps,
            seconds["pgd"] * steps,
            note=f"{where}; the exact gradient of the smoothing; peer: ours on the bare network.",
        ),
    ]


def _setting(sizes: _Sizes) -> _Setting:
    model = models.build(sizes.model, num_classes=10, image_size=_SIDE, rngs=nnx.Rngs(0))
    graph, state = nnx.split(model)

    def logits(_: jax.Array, images: jax.Array) -> jax.Array:
        return nnx.merge(graph, state)(images)[0]

    images = jnp.asarray(photographs(sizes.batch, _SIDE))
    keys = jax.random.split(jax.random.key(0), sizes.batch)
    labels = jnp.argmax(jax.jit(logits)(keys[0], images), axis=-1)
    return _Setting(logits, keys, images, labels)


def _jitted(
    attack: attacks.Attack, setting: _Setting, epsilon: float = _EPSILON
) -> Callable[[], Any]:
    function = jax.jit(lambda *arguments: attack(setting.logits, *arguments))
    return lambda: function(setting.keys, setting.images, setting.labels, epsilon)


def _python_ascent(setting: _Setting, steps: int) -> Callable[[], Any]:
    """PGD as one would write it first: the step is jitted, the loop is not, the last point counts."""

    @jax.jit
    def step(points: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
        def loss(x: jax.Array) -> jax.Array:
            return losses.ce(setting.logits(setting.keys[0], x), labels).sum()

        moved = points + 2.5 / steps * _EPSILON * jnp.sign(jax.grad(loss)(points))
        return jnp.clip(jnp.clip(moved, images - _EPSILON, images + _EPSILON), 0.0, 1.0)

    @jax.jit
    def right(points: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.argmax(setting.logits(setting.keys[0], points), axis=-1) == labels

    def task() -> jax.Array:
        noise = np.random.default_rng(0).uniform(-1, 1, size=setting.images.shape)
        points = jnp.clip(setting.images + _EPSILON * noise.astype(np.float32), 0.0, 1.0)
        for _ in range(steps):
            points = step(points, setting.images, setting.labels)
        return right(points, setting.labels)

    return task


def _python_search(setting: _Setting, queries: int) -> Callable[[], Any]:
    """The Square attack with its squares drawn and pasted on the host."""

    @jax.jit
    def margin(points: jax.Array, labels: jax.Array) -> jax.Array:
        return losses.margin(setting.logits(setting.keys[0], points), labels)

    def task() -> np.ndarray:
        random = np.random.default_rng(0)
        images = np.asarray(setting.images)
        signs = random.choice([-1, 1], size=(len(images), 1, _SIDE, 3))
        best = np.clip(images + np.float32(_EPSILON) * signs, 0, 1).astype(np.float32)
        lowest = np.array(margin(best, setting.labels))
        side = _SIDE // 4
        for _ in range(queries - 1):
            tried = best.copy()
            for index in range(len(images)):
                row, column = random.integers(0, _SIDE - side + 1, size=2)
                window = (index, slice(row, row + side), slice(column, column + side))
                change = np.float32(_EPSILON) * random.choice([-1, 1], size=3)
                tried[window] = np.clip(images[window] + change, 0, 1)
            found = np.asarray(margin(tried, setting.labels))
            better = found < lowest
            best[better], lowest[better] = tried[better], found[better]
        return best

    return task
