"""`adversarial`: attacks by those who do not know of the smoothing, and by those who do.

Attackers, by what they attack; all are judged behind the defence, but `none`:

- `none`: the bare network, judged bare.
- `unaware`: the same images, which the defence then smooths. What the paper reports.
- `straight-through`: the defended network, as if smoothing had the gradient of the identity.
- `exact`: the defended network by its own gradient; its regions are found anew at every step.
- `black-box`: the defended network by its answers alone.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from eval.results import Cell, Row, accuracy
from eval.suites.base import Found, Judge, Signs, Task, image_keys, pair, pixels
from train import attacks

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Subject, Weights

_SUITE = "adversarial"
_ONE_STEP, _BLACK_BOX = "fgsm", "square"
_DEFENDED = ("unaware", "straight-through", "exact", "black-box")
# Attacks of this name are repeated at the one epsilon that nothing should survive.
_SANITY_ATTACK = "pgd"

# These compare sorted logits, which takes so many classes.
_DLR_ATTACKS, _DLR_CLASSES = ("apgd_dlr", "apgd_targeted"), 4

# Shares of the images above which a row is flagged.
_ZERO_GRADIENTS, _STILL_RISING, _SURVIVORS = 0.01, 0.05, 0.05
_NOTICED = ("zero_gradient", "bad_gradient", "still_rising")

Attack = attacks.PGD | attacks.APGD | attacks.Square
Network = Callable[["Weights", jax.Array, jax.Array], jax.Array]


def build(name: str, options: "Options", draws: int) -> Attack:
    """An attack by name, with the budget of the options."""
    assert options.pgd_steps and options.apgd_steps and options.queries
    restarts = options.restarts
    if name == _ONE_STEP:
        return attacks.fgsm(draws)
    if name == "pgd":
        return attacks.PGD(steps=options.pgd_steps, restarts=restarts, draws=draws)
    if name == _BLACK_BOX:
        return attacks.Square(queries=options.queries, draws=draws)
    loss = name.removeprefix("apgd_")
    return attacks.APGD(steps=options.apgd_steps, restarts=restarts, loss=loss, draws=draws)


def networks(subject: "Subject") -> dict[str, Network]:
    """What each kind of attacker differentiates or asks: (weights, key, images) -> logits."""

    def straight_through(weights: "Weights", key: jax.Array, images: jax.Array) -> jax.Array:
        defended = jax.lax.stop_gradient(subject.defend(images))
        return subject.logits(weights, key, defended + images - jax.lax.stop_gradient(images))

    def exact(weights: "Weights", key: jax.Array, images: jax.Array) -> jax.Array:
        return subject.logits(weights, key, subject.defend(images))

    return {
        "none": subject.logits,
        "straight-through": straight_through,
        "exact": exact,
        "black-box": exact,
    }


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """One pass for every attacker, attack and epsilon; those who only ask come last."""
    assert options.attack_limit is not None
    split = subject.limited(options.attack_limit)
    chosen = _chosen(subject, options)
    gradient = tuple(name for name in chosen if name != _BLACK_BOX)
    asked = ("none", *(name for name in options.attackers if name != "unaware"))
    plan = [(who, name) for who in asked if who != "black-box" for name in gradient]
    if _BLACK_BOX in chosen:
        plan += [(who, _BLACK_BOX) for who in ("none", "black-box") if who in asked]
    sanity = {options.sanity_epsilon} - {0, *options.epsilons}
    for who, name in plan:
        run = _compile(subject, options, who, name)
        for epsilon in (*options.epsilons, *(sanity if name == _SANITY_ATTACK else ())):
            cells = _cells(subject, options, who, name, epsilon / 255)
            measure = _measure(subject, options, judge, cells, run, epsilon / 255)
            yield Task(cells, split, measure, _flags(options), _extra(options))


def _chosen(subject: "Subject", options: "Options") -> tuple[str, ...]:
    """The attacks asked for; unless some are named, those that so few classes allow."""
    classes = subject.dataset.num_classes
    possible = tuple(
        name for name in options.attacks if classes >= _DLR_CLASSES or name not in _DLR_ATTACKS
    )
    if possible != options.attacks and options.attacks != type(options).attacks:
        raise ValueError(
            f"--attacks: {' and '.join(_DLR_ATTACKS)} need at least {_DLR_CLASSES} classes, "
            f"{subject.dataset.name} has {classes}"
        )
    return possible


def _cells(
    subject: "Subject", options: "Options", who: str, name: str, epsilon: float
) -> tuple[Cell, ...]:
    bare, defended = pair(subject, _SUITE, name, epsilon=epsilon)
    if who != "none":
        return (defended._replace(attacker=who),)
    bare = bare._replace(attacker="none")
    return (
        (bare, defended._replace(attacker="unaware")) if "unaware" in options.attackers else (bare,)
    )


def _compile(subject: "Subject", options: "Options", who: str, name: str) -> Any:
    draws = subject.draws(options)
    attack, network = build(name, options, draws), networks(subject)[who]

    def run(
        weights: "Weights",
        keys: jax.Array,
        images: jax.Array,
        labels: jax.Array,
        epsilon: jax.Array,
    ) -> attacks.Outcome:
        def logits(key: jax.Array, images: jax.Array) -> jax.Array:
            return network(weights, key, images)

        return attack(logits, keys, images, labels, epsilon)

    return jax.jit(run)


def _measure(
    subject: "Subject",
    options: "Options",
    judge: Judge,
    cells: tuple[Cell, ...],
    run: Any,
    epsilon: float,
) -> Callable[["Batch"], dict[str, jax.Array]]:
    scale = np.ones_like(subject.mean_and_std[1])
    if options.epsilon_unit == "normalised":
        scale = subject.mean_and_std[1]
    bound = jnp.asarray(epsilon * scale)  # [C]

    def measure(batch: "Batch") -> dict[str, jax.Array]:
        # The same start for every attacker, so that they differ in what they know alone.
        keys = image_keys(options.seed, cells[0].name, batch["index"])
        outcome = run(subject.weights, keys, pixels(batch["image"]), batch["label"], bound)
        signs = {cells[0].key: outcome.right}
        for cell in cells[1:]:
            signs[cell.key] = judge.defended(keys, outcome.images, batch["label"])
        return signs | {name: getattr(outcome, name) for name in _NOTICED}

    return measure


def _extra(options: "Options") -> dict[str, Any]:
    return {"epsilon_unit": options.epsilon_unit, "budget": options.budget}


def _flags(options: "Options") -> Any:
    # On normalised images the same number is four times smaller: some networks do survive it.
    in_pixels = options.epsilon_unit == "pixels"
    sanity = options.sanity_epsilon / 255 if in_pixels else None

    def flags(cell: Cell, signs: Signs, before: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        right = signs[cell.key]
        found = []
        # Only survivors matter: DLR, for one, has no gradient where the label comes third.
        if (signs["zero_gradient"] & right).mean() > _ZERO_GRADIENTS:
            found.append("zero gradients")
        if signs["bad_gradient"].any():
            found.append("nan gradients")
        if cell.attacker == "unaware":
            return tuple(found)  # the loss was not that of the network which is judged
        if cell.name != _ONE_STEP and (signs["still_rising"] & right).mean() > _STILL_RISING:
            found.append("loss still rising")
        at_sanity = cell.name == _SANITY_ATTACK and cell.epsilon == sanity
        if at_sanity and right.mean() > _SURVIVORS:
            found.append("does not fall to zero")
        if cell.name == _BLACK_BOX and cell.attacker in ("none", "black-box"):
            against = ("none",) if cell.attacker == "none" else ("straight-through", "exact")
            seen = {
                other: values
                for other, values in _of(before, cell.epsilon, against).items()
                if other.name != _BLACK_BOX
            }
            if seen and right.sum() < np.logical_and.reduce(list(seen.values())).sum():
                found.append("black box beats white box")
        return tuple(found)

    return flags


def _of(
    right: Mapping[str, np.ndarray], epsilon: float | None, attackers: tuple[str, ...]
) -> dict[Cell, np.ndarray]:
    cells = {Cell.parse(key): values for key, values in right.items()}
    return {
        cell: values
        for cell, values in cells.items()
        if cell.epsilon == epsilon and cell.attacker in attackers
    }


def summarise(options: "Options", found: Found) -> Iterable[Row]:
    """The pointwise worst case of each attacker, and of all who face the defence (`any`)."""
    extra = _extra(options)
    for epsilon in (value / 255 for value in options.epsilons):
        for who in ("none", *options.attackers, "any"):
            group = _DEFENDED if who == "any" else (who,)
            seen = _of(found.right, epsilon, group)
            if seen:
                cell = next(iter(seen))._replace(name="worst", attacker=who)
                worst = np.logical_and.reduce(list(seen.values()))
                yield accuracy(cell, worst, extra=extra)
