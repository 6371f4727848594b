"""Which curves a report draws: accuracy over level, over severity, over epsilon."""

import string
from collections.abc import Callable, Sequence

from eval.report import wording
from eval.report.charts import Axis, Chart, Point, Series, percent_axis
from eval.report.read import Row, Run


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
    """Accuracy over the level, with the raw accuracy as a level line."""
    lines, levels = [], set()
    for number, (run, letter) in enumerate(zip(runs, run_letters(runs), strict=True)):
        rows = _accuracies(run, "clean")
        smoothed = [row for row in rows if row.smoothed and row.sparsity is not None]
        if len(smoothed) < 2:
            continue
        points = _points(smoothed, lambda row: row.sparsity or 0.0)
        levels |= {point.x for point in points}
        several = len(runs) > 1
        lines.append(Series(letter or "smoothed", points, number if several else 1))
        for raw in (row for row in rows if not row.smoothed):
            ends = tuple(
                Point(point.x, raw.value, raw.low, raw.high) for point in (points[0], points[-1])
            )
            colour = number if several else 0
            lines.append(Series(_join(letter, "raw"), ends, colour, dashed=True))
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
    for number, letter in enumerate(run_letters(runs)):
        for smoothed in (False, True):
            chosen = [r for r in rows[number] if r.name == name and bool(r.smoothed) == smoothed]
            if chosen:
                points = _points(chosen, lambda row: row.severity or 0.0)
                # With several runs the letter alone is the smoothed line: six names would not fit.
                label = (letter or "smoothed") if smoothed else _join(letter, "raw")
                colour = number if len(runs) > 1 else int(smoothed)
                lines.append(Series(label, points, colour, dashed=not smoothed))
    return lines


def _adversarial(runs: Sequence[Run]) -> list[Chart]:
    """One chart per attack (and per run, so that the attackers keep their colours)."""
    charts = []
    for run, letter in zip(runs, run_letters(runs), strict=True):
        rows = _without_checks([row for row in _accuracies(run, "adversarial") if row.epsilon])
        strengths = sorted({_strength(row) for row in rows})
        if len(strengths) < 2:
            continue
        ticks = tuple((strength, f"{strength:g}") for strength in (0.0, *strengths))
        axis = Axis("epsilon, in 1/255", 0.0, strengths[-1], ticks)
        names = sorted({row.name for row in rows}, key=_order(wording.ATTACKS))
        if len(runs) > 1 and "worst" in names:
            names = ["worst"]  # the rest is in the table: a chart per attack and run is too many
        for name in names:
            lines = _by_attacker([row for row in rows if row.name == name])
            title = _join(letter, _capital(wording.attack(name)))
            charts.append(Chart(title, axis, percent_axis([]), tuple(lines), width=280))
    return charts


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
    names = sorted({row.attacker or "" for row in rows}, key=_order(wording.ATTACKERS))
    order = list(wording.ATTACKERS)
    lines = []
    for name in names:
        chosen = [row for row in rows if (row.attacker or "") == name]
        points = _points(chosen, _strength)
        colour = order.index(name) if name in order else len(order)
        lines.append(Series(wording.attacker(name), points, colour, dashed=name == "none"))
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


def _order(names: dict[str, str]) -> Callable[[str], tuple[int, str]]:
    known = list(names)
    return lambda name: (known.index(name) if name in known else len(known), name)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _join(*words: str) -> str:
    return " ".join(filter(None, words))
