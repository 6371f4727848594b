"""How the tables of each suite are laid out: what is a line, what is a column, what is folded."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from eval.report import wording
from eval.report.read import Row, Run

_BARE, _PAPER = "none", "paper"
# After the levels, which lie within 0 and 1, in the table of clean images.
_PLACES_OF_CLEAN = {_BARE: 2.0, "soft": 3.0, "auto": 4.0}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
      text: what is shown, without the interval.
      sort: what it is sorted by; None is always last.
      half_interval: half of the 95 % interval, as text; empty without one.
      title: more about the number.
      best: whether it is the best of its row.
      flagged: whether the number is to be read with care; the title says why.
    """

    text: str = ""
    sort: float | str | None = None
    half_interval: str = ""
    title: str = ""
    best: bool = False
    flagged: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a row of results goes.

    Attributes:
      title: first words of the caption.
      headings: of the label columns.
      labels: the label cells of a row; equal ones share a line of the table.
      variant: the heading of the column among those of the run.
      order: places the variants, by a row of each.
      comparable: whether the columns of one run compete for the best of a line.
      folded: whether it is a detail that a page may hide until asked.
    """

    title: str
    headings: tuple[str, ...]
    labels: Callable[[Row], tuple[Cell, ...]]
    variant: Callable[[Row], str]
    order: Callable[[Row], float] = lambda row: 0
    comparable: bool = True
    folded: bool = False


def suite_layouts(
    suite: str, metric: str, runs: Sequence[Run]
) -> Iterator[tuple[Layout, Callable[[Row], bool]]]:
    """The layouts of a suite, each with the rows it takes; together they take every row."""
    unit = {"accuracy": "Accuracy in percent", "seconds": "Seconds", "mce": "mCE in percent"}
    title = unit.get(metric, wording.plain(metric))
    rows = [row for run in runs for row in run.rows if row.suite == suite]
    treatment = _treatment(rows)

    def layout(headings: tuple[str, ...], labels: Callable[[Row], tuple[Cell, ...]]) -> Layout:
        return Layout(title, headings, labels, treatment, order=_by_preprocessing)

    if suite == "clean":
        by_level = layout(("images",), _clean_label)
        yield dataclasses.replace(by_level, variant=lambda row: metric), _everything
    elif suite == "corruptions":
        mean = layout(("corruption",), _name)
        if metric == "accuracy":
            mean = dataclasses.replace(mean, title=f"{title}, mean over the severities")
        yield mean, lambda row: row.severity is None
        each = layout(("corruption", "severity"), lambda row: (*_name(row), _number(row.severity)))
        title_each = f"{title}, each severity"
        yield (
            dataclasses.replace(each, title=title_each, folded=True),
            lambda row: row.severity is not None,
        )
    elif suite == "adversarial":
        if len({row.preprocess for row in rows} - {_BARE}) > 1:
            by_defence = layout(("attack", "epsilon", "attacker"), _attack_and_attacker)
            yield from _several_defences(by_defence, rows)
        else:
            yield _one_defence(title, several=len(runs) > 1, metric=metric), _everything
    elif suite == "runtime":
        one = layout(("what",), _name)
        yield dataclasses.replace(one, variant=lambda row: metric), _everything
    else:
        heading = {"lowres": "scale", "frequency": "component"}.get(suite, "what")
        yield layout((heading,), _described), _everything


def _several_defences(
    layout: Layout, rows: Sequence[Row]
) -> Iterator[tuple[Layout, Callable[[Row], bool]]]:
    """A line per attacker and a column per defence; the worst cases first, for they say the most."""
    has_worst = any(row.name == "worst" for row in rows)
    # The most that the weakest attacker leaves is no merit.
    worst = dataclasses.replace(layout, comparable=False)
    each = dataclasses.replace(worst, title=f"{layout.title}, each attack", folded=has_worst)
    yield worst, lambda row: row.name == "worst"
    yield each, lambda row: row.name != "worst"


def _one_defence(title: str, *, several: bool, metric: str) -> Layout:
    """One run has a column per attacker; several have a line per attacker, so that the runs stand side by side."""
    if several:
        return Layout(
            title,
            ("attack", "epsilon", "attacker"),
            _attack_and_attacker,
            variant=lambda row: metric,
        )
    return Layout(
        f"{title} by attacker",
        ("attack", "epsilon"),
        _attack,
        variant=lambda row: wording.attacker(row.attacker) or metric,
        order=lambda row: wording.place(row.attacker or "", wording.ATTACKERS),
        # Columns are attackers: the highest is the weakest attack, which is no merit.
        comparable=False,
    )


def _treatment(rows: Sequence[Row]) -> Callable[[Row], str]:
    """The preprocessing; with the level where the suite has several, so that no two rows meet in one cell."""
    levels = {row.sparsity for row in rows if row.preprocess == _PAPER}

    def variant(row: Row) -> str:
        if row.preprocess is None:
            return row.metric
        return wording.preprocess(row.preprocess, row.sparsity if len(levels) > 1 else None)

    return variant


def _by_preprocessing(row: Row) -> float:
    return wording.place(row.preprocess or "", wording.PREPROCESSING)


def _everything(row: Row) -> bool:
    return True


def _attack(row: Row) -> tuple[Cell, ...]:
    # Runs may write the same strength with more or fewer digits.
    strength = Cell(wording.epsilon(row.epsilon), round((row.epsilon or 0.0) * 255, 2))
    return Cell(wording.attack(row.name), wording.place(row.name, wording.ATTACKS)), strength


def _attack_and_attacker(row: Row) -> tuple[Cell, ...]:
    name = row.attacker or ""
    return *_attack(row), Cell(wording.attacker(name), wording.place(name, wording.ATTACKERS))


def _clean_label(row: Row) -> tuple[Cell, ...]:
    if row.preprocess != _PAPER:
        name = row.preprocess or _BARE
        return (Cell(wording.preprocess(name), _PLACES_OF_CLEAN.get(name, 5.0)),)
    if row.sparsity is None:
        return (Cell("blurred", -1.0),)
    return (Cell(f"smoothed, level {row.sparsity:.2f}", row.sparsity),)


def _name(row: Row) -> tuple[Cell, ...]:
    name = "mean over all" if row.name == "mean" else wording.plain(row.name)
    return (Cell(name, name),)


def _described(row: Row) -> tuple[Cell, ...]:
    """Name and every setting but the treatment, for suites that this report has no layout for."""
    words = wording.describe(dataclasses.replace(row, preprocess=None))
    if row.radius is not None:
        words += f", radius {row.radius:g}"
    return (Cell(words, words),)


def _number(value: float | None) -> Cell:
    return Cell() if value is None else Cell(f"{value:g}", value)
