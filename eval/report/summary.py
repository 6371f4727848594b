"""What a reader wants to know first: the headline numbers of a run, its flags, and what to mind."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eval import paper
from eval.report import wording
from eval.report.read import Row, Run

_HEADLINE_EPSILON = 8 / 255
# These attack the network with its smoothing; the unaware one does not.
_ATTACKS_THE_DEFENCE = ("straight-through", "exact", "black-box")


@dataclasses.dataclass(frozen=True)
class Headline:
    """Two numbers of one kind, in percent; None where the run has none. `words` are the title within a sentence."""

    title: str
    words: str
    raw: Row | None
    smoothed: Row | None
    raw_words: str = "raw"
    smoothed_words: str = "smoothed"


def headlines(run: Run) -> list[Headline]:
    """Clean, mean corruption and worst case, as far as the run has them."""
    clean = _rows(run, "clean")
    level = run.evaluation.get("sparsity")
    blurred = run.evaluation.get("method") == "blur"
    found = [
        Headline(
            "Clean images",
            "of clean images",
            _first(row for row in clean if not row.smoothed),
            _first(row for row in clean if row.smoothed and _at_level(row, level)),
            smoothed_words="blurred"
            if blurred
            else f"smoothed at {level:g}"
            if level
            else "smoothed",
        )
    ]
    means = [r for r in _rows(run, "corruptions") if r.name == "mean" and r.severity is None]
    found.append(
        Headline(
            "Mean over the corruptions",
            "of corrupted images on average",
            _first(row for row in means if not row.smoothed),
            _first(row for row in means if row.smoothed),
        )
    )
    found += _worst_case(run)
    return [line for line in found if line.raw or line.smoothed]


def sentence(run: Run) -> str:
    """The headlines in plain sentences; empty without any."""
    parts = []
    for line in headlines(run):
        numbers = [
            f"{row.value:.1f}\N{NO-BREAK SPACE}% {words}"
            for row, words in ((line.raw, line.raw_words), (line.smoothed, line.smoothed_words))
            if row
        ]
        parts.append(f"{line.words}, {' and '.join(numbers)}")
    return f"Recognised: {'; '.join(parts)}." if parts else ""


def comparison(runs: Sequence[Run]) -> str:
    """Which of several runs has the highest of each headline number."""
    best: dict[str, tuple[float, str]] = {}
    for run in runs:
        for line in headlines(run):
            for row in (line.raw, line.smoothed):
                if row and (line.words not in best or row.value > best[line.words][0]):
                    treatment = line.smoothed_words if row is line.smoothed else line.raw_words
                    best[line.words] = row.value, f"{run.label} ({treatment})"
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
            texts.append("In this run the test images of the columns “smoothed” are blurred.")
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


def _worst_case(run: Run) -> list[Headline]:
    rows = [row for row in _rows(run, "adversarial") if row.epsilon]
    strengths = sorted({row.epsilon or 0.0 for row in rows})
    if not strengths:
        return []
    wanted = [s for s in strengths if math.isclose(s, _HEADLINE_EPSILON, abs_tol=1e-4)]
    strength = (wanted or strengths)[0]
    rows = [row for row in rows if row.epsilon == strength]
    bare = [row for row in rows if row.attacker == "none"]
    smoothed, words = _against_the_defence(rows)
    return [
        Headline(
            f"Worst case at ε = {wording.epsilon(strength)}",
            f"in the worst case of an attack at ε = {wording.epsilon(strength)}",
            min(bare, key=_value, default=None),
            smoothed,
            raw_words="bare network",
            smoothed_words=words,
        )
    ]


def _against_the_defence(rows: Sequence[Row]) -> tuple[Row | None, str]:
    """The lowest accuracy of the defended network, by the strongest kind of attacker there is."""
    choices: list[tuple[Callable[[Row], bool], str]] = [
        (lambda row: row.attacker == "any", "smoothed, any attacker"),
        (lambda row: row.attacker in _ATTACKS_THE_DEFENCE, "smoothed, strongest attacker run"),
        (lambda row: row.attacker == "unaware", "smoothed, unaware attacker only"),
    ]
    for belongs, words in choices:
        found = [row for row in rows if belongs(row)]
        if found:
            return min(found, key=_value), words
    return None, ""


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


def _first(rows: Iterable[Row]) -> Row | None:
    return next(iter(rows), None)


def _value(row: Row) -> float:
    return row.value
