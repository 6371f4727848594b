"""Which curves a report draws: accuracy over level, over severity, over epsilon."""

import itertools
import string
from collections.abc import Callable, Sequence

from eval.report import wording
from eval.report.charts import Axis, Chart, Point, Series, percent_axis
from eval.report.read import Row, Run

_DASHES = {"none": "dashed", "paper": "solid", "soft": "dotted", "auto": "dash-dotted"}


def run_letters(runs: Sequence[Run]) -> list[str]:
    """A short name per run for labels in charts; empty for a single run."""
    if len(runs) == 1:
        return [""]
    letters = string.ascii_uppercase
    return [letters[k] if k < len(letters) else str(k + 1) for k in range(len(runs))]


def suite_charts(runs: Sequence[Run], suite: str) -> list[Chart]:
    """The charts of a suite; empty where it has no curve or a curve would have no second point."""
    draw = {"clean": _clean, "corruptions": _corruptions, "adversarial": _adversarial}.get(suite)
    return draw(runs) if draw else []


def _clean(runs: Sequence[Run]) -> list[Chart]:
    """Accuracy over the level, with what has no such level as a line across."""
    lines, levels = [], set()
    for number, run in enumerate(runs):
        rows = _accuracies(run, "clean")
        smoothed = [row for row in rows if row.preprocess == "paper" and row.sparsity is not None]
        if len(smoothed) < 2:
            continue
        points = _points(smoothed, lambda row: row.sparsity or 0.0)
        levels |= {point.x for point in points}
        lines.append(_treatment(runs, number, "paper", points))
        for row in rows:
            if row.preprocess and row.preprocess != "paper":
                ends = tuple(
                    Point(point.x, row.value, row.low, row.high)
                    for point in (points[0], points[-1])
                )
                lines.append(_treatment(runs, number, row.preprocess, ends))
    if not lines:
        return []
    ticks = tuple((level, f"{level:g}") for level in sorted(levels))
    axis = Axis("level (fraction of edges kept)", min(levels), max(levels), _thin(ticks))
    heights = [point.y for line in lines for point in line.points]
    y = percent_axis(heights, from_zero=False)
    return [Chart("Accuracy over the level", axis, y, tuple(lines), width=360, height=210)]


def _corruptions(runs: Sequence[Run]) -> list[Chart]:
    """One small chart per corruption, on equal axes."""
    rows = [[r for r in _accuracies(run, "corruptions") if r.severity is not None] for run in runs]
    severities = sorted({float(row.severity or 0) for one in rows for row in one})
    if len(severities) < 2:
        return []
    axis = Axis("severity", severities[0], severities[-1], tuple((s, f"{s:g}") for s in severities))
    names = dict.fromkeys(row.name for one in rows for row in one)
    return [
        Chart(
            _capital(wording.plain(name)),
            axis,
            percent_axis([]),
            tuple(_treatments(runs, rows, name)),
        )
        for name in names
    ]


def _treatments(runs: Sequence[Run], rows: Sequence[Sequence[Row]], name: str) -> list[Series]:
    lines = []
    for number in range(len(runs)):
        for preprocess in wording.preprocessings(rows[number]):
            chosen = [r for r in rows[number] if r.name == name and r.preprocess == preprocess]
            if chosen:
                points = _points(chosen, lambda row: row.severity or 0.0)
                lines.append(_treatment(runs, number, preprocess, points))
    return lines


def _treatment(
    runs: Sequence[Run], number: int, preprocess: str, points: tuple[Point, ...]
) -> Series:
    """A line of a run; colours tell runs apart, or within one run what is done to the images."""
    label = wording.IN_CHARTS.get(preprocess, preprocess)
    if len(runs) > 1:
        # The letter alone is the paper's smoothing: so many names would not fit.
        letter = run_letters(runs)[number]
        label = letter if preprocess == "paper" else _join(letter, label)
    colour = number if len(runs) > 1 else treatment_colour(preprocess)
    return Series(label, points, colour, treatment_dash(preprocess))


def treatment_colour(preprocess: str) -> int:
    """Of the palette, where there is one run."""
    return wording.place(preprocess, wording.PREPROCESSING)


def treatment_dash(preprocess: str) -> str:
    """How the line is drawn; in black and white it is all there is."""
    return _DASHES.get(preprocess, "solid")


def _adversarial(runs: Sequence[Run]) -> list[Chart]:
    """One chart per attack (and per run and defence, so that the attackers keep their colours)."""
    charts = []
    for run, letter in zip(runs, run_letters(runs), strict=True):
        rows = _without_checks([row for row in _accuracies(run, "adversarial") if row.epsilon])
        defences = [name for name in wording.preprocessings(rows) if name != "none"] or ["none"]
        names = wording.ordered({row.name for row in rows}, wording.ATTACKS)
        if (len(runs) > 1 or len(defences) > 1) and "worst" in names:
            names = ["worst"]  # the rest is in the table: so many charts are too many
        for name, defence in itertools.product(names, defences):
            shown = [r for r in rows if r.name == name and r.preprocess in (None, "none", defence)]
            title = _join(letter, _capital(wording.attack(name)))
            if len(defences) > 1:
                title += f", {wording.preprocess(defence)}"
            charts += _by_strength(title, rows, shown)
    return charts


def _by_strength(title: str, rows: Sequence[Row], shown: Sequence[Row]) -> list[Chart]:
    """A chart of some rows on the axis of all of them; none if there is one strength only."""
    strengths = sorted({_strength(row) for row in rows})
    if len(strengths) < 2:
        return []
    ticks = tuple((strength, f"{strength:g}") for strength in (0.0, *strengths))
    axis = Axis("epsilon, in 1/255", 0.0, strengths[-1], ticks)
    return [Chart(title, axis, percent_axis([]), tuple(_by_attacker(shown)), width=280)]


def _without_checks(rows: Sequence[Row]) -> list[Row]:
    """Leaves out strengths that one of several attacks has alone.

    Such a one checks that accuracy falls to zero; it is so large that it would squeeze the others together.
    """
    if len({row.name for row in rows}) < 2:
        return list(rows)
    names: dict[float, set[str]] = {}
    for row in rows:
        names.setdefault(_strength(row), set()).add(row.name)
    return [row for row in rows if len(names[_strength(row)]) > 1]


def _strength(row: Row) -> float:
    return round((row.epsilon or 0.0) * 255, 2)


def _by_attacker(rows: Sequence[Row]) -> list[Series]:
    names = wording.ordered({row.attacker or "" for row in rows}, wording.ATTACKERS)
    lines = []
    for name in names:
        chosen = [row for row in rows if (row.attacker or "") == name]
        points = _points(chosen, _strength)
        colour = wording.place(name, wording.ATTACKERS)
        dash = "dashed" if name == "none" else "solid"
        lines.append(Series(wording.attacker(name), points, colour, dash))
    return lines


def _accuracies(run: Run, suite: str) -> list[Row]:
    return [row for row in run.rows if row.suite == suite and row.metric == "accuracy"]


def _points(rows: Sequence[Row], place: Callable[[Row], float]) -> tuple[Point, ...]:
    points = [Point(place(row), row.value, row.low, row.high) for row in rows]
    return tuple(sorted(points, key=lambda point: point.x))


def _thin(ticks: tuple[tuple[float, str], ...], at_most: int = 8) -> tuple[tuple[float, str], ...]:
    """Every second, third, ... tick, so that their texts do not meet; the last one always."""
    step = -(-len(ticks) // at_most)
    return tuple(reversed(ticks[::-1][::step]))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _join(*words: str) -> str:
    return " ".join(filter(None, words))
