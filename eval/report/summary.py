"""What a reader wants to know first: the headline numbers of a run, its flags, and what to mind."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval import paper
from eval.report import wording
from eval.report.read import Row, Run

_HEADLINE_EPSILON = 8 / 255
# These attack the network with its smoothing; the unaware one does not.
_ATTACKS_THE_DEFENCE = ("straight-through", "exact", "black-box")


@dataclasses.dataclass(frozen=True)
class Number:
    """A row with what was done to its images, in words."""

    row: Row
    words: str


@dataclasses.dataclass(frozen=True)
class Headline:
    """Numbers of one kind, in percent, a column each. `words` are the title within a sentence."""

    title: str
    words: str
    numbers: tuple[Number, ...]


def headlines(run: Run) -> list[Headline]:
    """Clean, mean corruption and worst case, as far as the run has them."""
    level = run.evaluation.get("sparsity")
    clean = [
        row for row in _rows(run, "clean") if row.preprocess != "paper" or _at_level(row, level)
    ]
    means = [r for r in _rows(run, "corruptions") if r.name == "mean" and r.severity is None]
    found = [
        Headline("Clean images", "of clean images", _columns(clean, run, level)),
        Headline(
            "Mean over the corruptions", "of corrupted images on average", _columns(means, run)
        ),
        *_worst_case(run),
    ]
    return [line for line in found if line.numbers]


def sentence(run: Run) -> str:
    """The headlines in plain sentences; empty without any."""
    parts = []
    for line in headlines(run):
        numbers = [f"{n.row.value:.1f}\N{NO-BREAK SPACE}% {n.words}" for n in line.numbers]
        listed = " and ".join(filter(None, (", ".join(numbers[:-1]), numbers[-1])))
        parts.append(f"{line.words}, {listed}")
    return f"Recognised: {'; '.join(parts)}." if parts else ""


def comparison(runs: Sequence[Run]) -> str:
    """Which of several runs has the highest of each headline number."""
    best: dict[str, tuple[float, str]] = {}
    for run in runs:
        for line in headlines(run):
            for number in line.numbers:
                value = number.row.value
                if line.words not in best or value > best[line.words][0]:
                    best[line.words] = value, f"{run.label} ({number.words})"
    parts = [
        f"{words}, {who} with {value:.1f}\N{NO-BREAK SPACE}%"
        for words, (value, who) in best.items()
    ]
    return f"Highest accuracy: {'; '.join(parts)}." if parts else ""


def flagged(runs: Sequence[Run]) -> dict[str, list[tuple[Run, Row]]]:
    """Every row with flags, by flag."""
    found: dict[str, list[tuple[Run, Row]]] = {}
    for run in runs:
        for row in run.rows:
            for flag in row.flags:
                found.setdefault(flag, []).append((run, row))
    return found


def cautions(runs: Sequence[Run]) -> list[str]:
    """Sentences to read before a number is quoted, flags apart."""
    found: dict[str, list[str]] = {}
    for run in runs:
        texts = paper.caveats(run.evaluation, _with_paper(run))
        texts += _about_attacks(run)
        if run.evaluation.get("method") == "blur":
            words = wording.preprocess("paper")
            texts.append(f"In this run the test images of the columns “{words}” are blurred.")
        texts += [*_about_smoothing(run), *_about_means(run)]
        if run.cut_off:
            texts.append("The last line of the results is incomplete and is left out.")
        for text in texts:
            found.setdefault(text, []).append(run.label)
    # What is true of all runs needs no names.
    return [
        text if len(labels) == len(runs) else f"{', '.join(labels)}: {text}"
        for text, labels in found.items()
    ]


def provenance(run: Run) -> str:
    """Versions, machine, options of the attacks and checksum of the weights, as far as the file has them."""
    about = run.evaluation
    found: dict[str, Any] = {}
    for key in ("versions", "attack_options"):
        if isinstance(about.get(key), Mapping):
            found |= about[key]
    if about.get("platform"):
        found["on"] = about["platform"]
    identity = about.get("identity")
    if isinstance(identity, Mapping) and identity.get("weights"):
        found["weights"] = identity["weights"]
    values = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()
    }
    return ", ".join(f"{wording.plain(key)} {value}" for key, value in values.items())


def attackers(runs: Sequence[Run]) -> list[str]:
    """Who attacks in any of the runs, from the weakest; empty without adversarial rows."""
    found = {row.attacker or "" for run in runs for row in _rows(run, "adversarial")}
    return [name for name in wording.ATTACKERS if name in found]


def has_attacks(runs: Sequence[Run]) -> bool:
    """Whether any run was attacked."""
    return any(row.suite == "adversarial" for run in runs for row in run.rows)


def attack_notes(runs: Sequence[Run]) -> list[str]:
    """What to know of attackers before a number is quoted; empty without adversarial rows."""
    if not has_attacks(runs):
        return []
    return [wording.WHICH_TO_QUOTE, *adaptive_notes(runs), wording.NOT_ELIGIBLE]


def adaptive_notes(runs: Sequence[Run]) -> list[str]:
    """What to know of attacks on automatic smoothing; empty without them."""
    notes: list[str] = []
    for run in runs:
        who = {r.attacker for r in _rows(run, "adversarial") if r.preprocess == "auto"}
        if who:
            notes += [wording.ADAPTIVE] + ([] if "exact" in who else [wording.ADAPTIVE_UNTESTED])
    return list(dict.fromkeys(notes))


def columns(runs: Sequence[Run]) -> dict[str, str]:
    """What is done to test images in any of the runs, and what that means, in the order of the columns."""
    found = wording.preprocessings(row for run in runs for row in run.rows)
    meanings = wording.PREPROCESSING_MEANINGS
    return {wording.preprocess(name): meanings[name] for name in found if name in meanings}


def _about_smoothing(run: Run) -> list[str]:
    """Says so where the run's method does not smooth as the paper does."""
    stiffness, area = (run.evaluation.get(key) for key in ("stiffness", "speckle_area"))
    ways = [f"with ties of stiffness {stiffness:g}"] if stiffness is not None else []
    ways += [f"after removing speckle of up to {area:g} pixels"] if area is not None else []
    if not ways:
        return []
    return [
        f"This run's method smooths {' and '.join(ways)}, the paper's does not: in the columns "
        f"“{wording.preprocess('paper')}” images are smoothed as the run's method does it."
    ]


def _about_means(run: Run) -> list[str]:
    """Says so where the columns of the mean are over different corruptions."""
    counts = {
        row.preprocess: row.corruptions
        for row in _rows(run, "corruptions")
        if row.name == "mean" and row.preprocess and row.corruptions
    }
    if len(set(counts.values())) < 2:
        return []
    listed = ", ".join(f"{wording.preprocess(name)} {n:g}" for name, n in counts.items())
    return [
        "The columns of the mean over the corruptions do not compare, they are over different "
        f"numbers of them: {listed}."
    ]


def _about_attacks(run: Run) -> list[str]:
    options = run.evaluation.get("attack_options")
    if not has_attacks([run]) or not isinstance(options, Mapping):
        return []
    texts = []
    if options.get("budget") == "quick":
        texts.append(
            "The attacks ran on the quick budget: few steps on few images. Longer ones do more harm; quote numbers of "
            "the standard budget."
        )
    if options.get("epsilon_unit") == "normalised":
        texts.append("Epsilon is on normalised images, not on pixels.")
    return texts


def _columns(rows: Sequence[Row], run: Run, level: float | None = None) -> tuple[Number, ...]:
    """The first row of each preprocessing; a level is named where it is given."""
    blurred = run.evaluation.get("method") == "blur"
    found = []
    for name in wording.PREPROCESSING:
        row = next((row for row in rows if row.preprocess == name), None)
        if row is not None:
            words = wording.preprocess(name, level)
            found.append(Number(row, "blurred" if blurred and name == "paper" else words))
    return tuple(found)


def _worst_case(run: Run) -> list[Headline]:
    rows = [row for row in _rows(run, "adversarial") if row.epsilon]
    strengths = sorted({row.epsilon or 0.0 for row in rows})
    if not strengths:
        return []
    wanted = [s for s in strengths if math.isclose(s, _HEADLINE_EPSILON, abs_tol=1e-4)]
    strength = (wanted or strengths)[0]
    rows = [row for row in rows if row.epsilon == strength]
    bare = [row for row in rows if row.attacker == "none"]
    numbers = [Number(min(bare, key=_value), "bare network")] if bare else []
    for defence in wording.PREPROCESSING:
        numbers += _against([row for row in rows if row.preprocess == defence], defence)
    return [
        Headline(
            f"Worst case at ε = {wording.epsilon(strength)}",
            f"in the worst case of an attack at ε = {wording.epsilon(strength)}",
            tuple(numbers),
        )
    ]


def _against(rows: Sequence[Row], defence: str) -> list[Number]:
    """The lowest accuracy behind a defence, by the strongest kind of attacker there is."""
    choices: list[tuple[Callable[[Row], bool], str]] = [
        (lambda row: row.attacker == "any", "under any attacker"),
        (lambda row: row.attacker in _ATTACKS_THE_DEFENCE, "under the strongest attacker run"),
        (lambda row: row.attacker == "unaware", "under the unaware attacker only"),
    ]
    for belongs, words in choices:
        found = [row for row in rows if belongs(row)]
        if found:
            return [Number(min(found, key=_value), f"{wording.preprocess(defence)} {words}")]
    return []


def _with_paper(run: Run) -> set[str]:
    return {
        row.suite
        for row in run.rows
        if paper.lookup(run.evaluation, dataclasses.asdict(row)) is not None
    }


def _rows(run: Run, suite: str) -> list[Row]:
    return [row for row in run.rows if row.suite == suite and row.metric == "accuracy"]


def _at_level(row: Row, level: float | None) -> bool:
    if row.sparsity is None or level is None:
        return row.sparsity is None
    return math.isclose(row.sparsity, level, abs_tol=1e-6)


def _value(row: Row) -> float:
    return row.value
