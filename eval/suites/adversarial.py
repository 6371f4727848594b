"""`adversarial`: attacks by those who do not know of the preprocessing, and by those who do.

Every preprocessing but `none` is a defence. Attackers, by what they attack; all are judged behind
the defence, but `none`:

- `none`: the bare network, judged bare.
- `unaware`: the same images, which the defence then preprocesses. What the paper reports.
- `straight-through`: the defended network, as if the defence had the gradient of the identity.
- `exact`: the defended network by its own gradient; regions are found anew at every step.
- `black-box`: the defended network by its answers alone.

The bare network is attacked once, for all defences.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from eval import preprocessing
from eval.results import Cell, Row, accuracy
from eval.suites.base import (
    Cells,
    Found,
    Judge,
    Measure,
    Signs,
    Task,
    columns,
    image_keys,
    pixels,
)
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


def networks(subject: "Subject", preprocess: str) -> dict[str, Network]:
    """What each kind of attacker differentiates or asks: (weights, key, images) -> logits.

    Args:
        subject: the network.
        preprocess: the defence's name.
    """
    defend = preprocessing.build(preprocess, subject)

    def straight_through(weights: "Weights", key: jax.Array, images: jax.Array) -> jax.Array:
        defended = jax.lax.stop_gradient(defend(images))
        return subject.logits(weights, key, defended + images - jax.lax.stop_gradient(images))

    def exact(weights: "Weights", key: jax.Array, images: jax.Array) -> jax.Array:
        return subject.logits(weights, key, defend(images))

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
    facing = [who for who in options.attackers if who != "unaware"]
    defences = [one for one in dict.fromkeys(options.preprocess) if one != preprocessing.BARE]
    asked = [("none", preprocessing.BARE), *((who, one) for one in defences for who in facing)]
    plan = [(*who, name) for who in asked if who[0] != "black-box" for name in gradient]
    if _BLACK_BOX in chosen:
        plan += [(*who, _BLACK_BOX) for who in asked if who[0] in ("none", "black-box")]
    sanity = {options.sanity_epsilon} - {0, *options.epsilons}
    for who, defence, name in plan:
        run = _compile(subject, options, who, defence, name)
        for epsilon in (*options.epsilons, *(sanity if name == _SANITY_ATTACK else ())):
            cells = _cells(subject, options, who, defence, name, epsilon / 255)
            if cells:
                measure = _measure(subject, options, judge, run, name, epsilon / 255)
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
    subject: "Subject", options: "Options", who: str, defence: str, name: str, epsilon: float
) -> Cells:
    """What an attack fills: one cell, or for the bare network those of all who share its images."""
    every = columns(subject, options, _SUITE, name, epsilon=epsilon)
    cells = [cell._replace(attacker=who) for cell in every if cell.preprocess == defence]
    if who == "none" and "unaware" in options.attackers:
        cells += [cell._replace(attacker="unaware") for cell in every if cell.preprocess != defence]
    return tuple(cells)


def _compile(subject: "Subject", options: "Options", who: str, defence: str, name: str) -> Any:
    draws = subject.draws(options)
    attack, network = build(name, options, draws), networks(subject, defence)[who]

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
    run: Any,
    name: str,
    epsilon: float,
) -> Measure:
    scale = np.ones_like(subject.mean_and_std[1])
    if options.epsilon_unit == "normalised":
        scale = subject.mean_and_std[1]
    bound = jnp.asarray(epsilon * scale)  # [C]

    def measure(batch: "Batch", wanted: Cells) -> dict[str, jax.Array]:
        # The same start for every attacker, so that they differ in what they know alone.
        keys = image_keys(options.seed, name, batch["index"])
        outcome = run(subject.weights, keys, pixels(batch["image"]), batch["label"], bound)
        unaware = [cell for cell in wanted if cell.attacker == "unaware"]
        signs = {cell.key: outcome.right for cell in wanted if cell not in unaware}
        signs |= judge.each(unaware, keys, outcome.images, batch["label"])
        return signs | {noticed: getattr(outcome, noticed) for noticed in _NOTICED}

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
                if other.name != _BLACK_BOX and other.preprocess == cell.preprocess
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
    """The pointwise worst case of each attacker, and of all who face a defence (`any`)."""
    extra = _extra(options)
    for epsilon in (value / 255 for value in options.epsilons):
        for who in ("none", *options.attackers, "any"):
            group = _DEFENDED if who == "any" else (who,)
            seen = _of(found.right, epsilon, group)
            for defence in dict.fromkeys(cell.preprocess for cell in seen):
                own = {c: right for c, right in seen.items() if c.preprocess == defence}
                cell = next(iter(own))._replace(name="worst", attacker=who)
                yield accuracy(cell, np.logical_and.reduce(list(own.values())), extra=extra)
