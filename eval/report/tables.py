"""Tables of a report as plain values: rows by setting, columns by run, the paper's numbers beside ours."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from eval import paper
from eval.report import wording
from eval.report.read import Row, Run

Kind = Literal["label", "ours", "paper"]
# For every other metric, more is better.
_LESS_IS_BETTER = ("mce", "seconds")


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
class Column:
    """A column's heading; `group` is the run it belongs to, empty for labels and where there is one run only."""

    heading: str
    kind: Kind
    group: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; `folded` ones are details that a page may hide until asked."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a row of results goes.

    Attributes:
      title: first words of the caption.
      headings: of the label columns.
      labels: the label cells of a row; equal ones share a line of the table.
      variant: the heading of the column among those of the run.
      order: places the variants.
      comparable: whether the columns of one run compete for the best of a line.
      folded: see `Table`.
    """

    title: str
    headings: tuple[str, ...]
    labels: Callable[[Row], tuple[Cell, ...]]
    variant: Callable[[Row], str]
    order: Callable[[str], float] = lambda variant: 0
    comparable: bool = True
    folded: bool = False


def suite_tables(runs: Sequence[Run], suite: str) -> list[Table]:
    """All tables of a suite; empty if no run has rows of it."""
    metrics = dict.fromkeys(row.metric for run in runs for row in run.rows if row.suite == suite)
    tables = []
    for metric in metrics:
        for layout, keep in _layouts(suite, metric, runs):
            chosen = [
                [r for r in run.rows if r.suite == suite and r.metric == metric and keep(r)]
                for run in runs
            ]
            if any(chosen):
                tables.append(_table(layout, runs, chosen))
    return tables


def _layouts(
    suite: str, metric: str, runs: Sequence[Run]
) -> Iterable[tuple[Layout, Callable[[Row], bool]]]:
    """The layouts of a suite, each with the rows it takes; together they take every row."""
    unit = {"accuracy": "Accuracy in percent", "seconds": "Seconds", "mce": "mCE in percent"}
    title = unit.get(metric, wording.plain(metric))
    treatment = _treatment([row for run in runs for row in run.rows if row.suite == suite])

    def layout(headings: tuple[str, ...], labels: Callable[[Row], tuple[Cell, ...]]) -> Layout:
        return Layout(title, headings, labels, treatment, order=_raw_first)

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
        yield _adversarial(title, several=len(runs) > 1, metric=metric), _everything
    elif suite == "runtime":
        one = layout(("what",), _name)
        yield dataclasses.replace(one, variant=lambda row: metric), _everything
    else:
        heading = {"lowres": "scale", "frequency": "component"}.get(suite, "what")
        yield layout((heading,), _described), _everything


def _adversarial(title: str, *, several: bool, metric: str) -> Layout:
    """One run has a column per attacker; several have a line per attacker, so that the runs stand side by side."""
    headings: tuple[str, ...] = ("attack", "epsilon")

    def labels(row: Row) -> tuple[Cell, ...]:
        place = _place(row.name, wording.ATTACKS)
        # Runs may write the same strength with more or fewer digits.
        strength = Cell(wording.epsilon(row.epsilon), round((row.epsilon or 0.0) * 255, 2))
        return Cell(wording.attack(row.name), place), strength

    def labels_with_attacker(row: Row) -> tuple[Cell, ...]:
        name = row.attacker or ""
        return *labels(row), Cell(wording.attacker(name), _place(name, wording.ATTACKERS))

    if several:
        return Layout(
            title, (*headings, "attacker"), labels_with_attacker, variant=lambda row: metric
        )
    order = list(wording.ATTACKERS.values())
    return Layout(
        f"{title} by attacker",
        headings,
        labels,
        variant=lambda row: wording.attacker(row.attacker) or metric,
        order=lambda name: _place(name, order),
        # Columns are attackers: the highest is the weakest attack, which is no merit.
        comparable=False,
    )


def _table(layout: Layout, runs: Sequence[Run], chosen: Sequence[Sequence[Row]]) -> Table:
    several = len(runs) > 1
    lines: dict[tuple[Cell, ...], dict[tuple[int, str], Row]] = {}
    for number, rows in enumerate(chosen):
        for row in rows:
            lines.setdefault(layout.labels(row), {})[number, layout.variant(row)] = row
    columns = [Column(heading, "label") for heading in layout.headings]
    cells = [list(labels) for labels in lines]
    for number, run in enumerate(runs):
        found = dict.fromkeys(layout.variant(row) for row in chosen[number])
        for variant in sorted(found, key=layout.order):
            group = run.label if several else ""
            measured = [line.get((number, variant)) for line in lines.values()]
            columns.append(Column(variant, "ours", group))
            for line, found_row in zip(cells, measured, strict=True):
                line.append(_measured(found_row))
            papers = [_paper_cell(run, row) for row in measured]
            if any(cell.text for cell in papers):
                alone = len(found) == 1
                columns.append(Column("paper" if alone else f"paper, {variant}", "paper", group))
                for line, cell in zip(cells, papers, strict=True):
                    line.append(cell)
    metric = next(row.metric for rows in chosen for row in rows)
    if several or layout.comparable:
        cells = [_mark_best(line, columns, metric) for line in cells]
    cells.sort(key=_sorting_key(len(layout.headings)))
    everything = [row for rows in chosen for row in rows]
    return Table(
        _caption(layout.title, everything),
        tuple(columns),
        tuple(tuple(line) for line in cells),
        layout.folded,
    )


def _measured(row: Row | None) -> Cell:
    if row is None:
        return Cell()
    write = wording.seconds if row.metric == "seconds" else wording.percent
    title, half = [], ""
    if row.low is not None and row.high is not None:
        half = write((row.high - row.low) / 2)
        title.append(f"95 % interval {write(row.low)} to {write(row.high)}")
    if row.n is not None:
        title.append(f"n = {wording.count(row.n)}")
    title += [f"flag: {flag}" for flag in row.flags]
    return Cell(write(row.value), row.value, half, "; ".join(title), flagged=bool(row.flags))


def _paper_cell(run: Run, row: Row | None) -> Cell:
    value = None if row is None else paper.lookup(run.evaluation, dataclasses.asdict(row))
    if value is None:
        return Cell()
    network = paper.backbone(run.evaluation)
    title = paper.runtime_task() if row and row.suite == "runtime" else f"the paper's {network}"
    return Cell(f"{value:.2f}", value, title=title)


def _mark_best(line: list[Cell], columns: Sequence[Column], metric: str) -> list[Cell]:
    ours = [c.sort for c, column in zip(line, columns, strict=True) if column.kind == "ours"]
    values = [value for value in ours if isinstance(value, int | float)]
    # One number has no rival, and where all are equal none is better.
    if len(set(values)) < 2:
        return line
    best = min(values) if metric in _LESS_IS_BETTER else max(values)
    return [
        dataclasses.replace(cell, best=column.kind == "ours" and cell.sort == best)
        for cell, column in zip(line, columns, strict=True)
    ]


def _sorting_key(labels: int) -> Callable[[list[Cell]], tuple[bool, list[float]]]:
    """Lines by their first label as the file has it if a text, else by number; means last."""

    def key(line: list[Cell]) -> tuple[bool, list[float]]:
        numbers = [c.sort if isinstance(c.sort, int | float) else 0.0 for c in line[:labels]]
        # Sorting is stable: after a text, numbers would tear the lines of one name apart.
        numbers = numbers if isinstance(line[0].sort, int | float) else []
        return line[0].text.startswith("mean"), numbers

    return key


def _caption(title: str, rows: Sequence[Row]) -> str:
    numbers = sorted({row.n for row in rows if row.n is not None})
    parts = [title]
    if any(row.low is not None for row in rows):
        parts.append("± half of the 95 % interval")
    if len(numbers) == 1:
        parts.append(f"n = {wording.count(numbers[0])}")
    elif numbers:
        parts.append(f"n from {wording.count(numbers[0])} to {wording.count(numbers[-1])}")
    return "; ".join(parts)


def _treatment(rows: Sequence[Row]) -> Callable[[Row], str]:
    """Raw or smoothed; with the level where the suite has several, so that no two rows meet in one cell."""
    levels = {row.sparsity for row in rows if row.smoothed}

    def variant(row: Row) -> str:
        if row.smoothed is None:
            return row.metric
        if not row.smoothed:
            return "raw"
        return f"smoothed at {row.sparsity:g}" if len(levels) > 1 and row.sparsity else "smoothed"

    return variant


def _raw_first(variant: str) -> float:
    return 0 if variant == "raw" else 1


def _everything(row: Row) -> bool:
    return True


def _clean_label(row: Row) -> tuple[Cell, ...]:
    if not row.smoothed:
        return (Cell("as they are", 2.0),)
    if row.sparsity is None:
        return (Cell("blurred", -1.0),)
    return (Cell(f"smoothed, level {row.sparsity:.2f}", row.sparsity),)


def _name(row: Row) -> tuple[Cell, ...]:
    name = "mean over all" if row.name == "mean" else wording.plain(row.name)
    return (Cell(name, name),)


def _described(row: Row) -> tuple[Cell, ...]:
    """Name and every setting but the treatment, for suites that this report has no layout for."""
    words = wording.describe(dataclasses.replace(row, smoothed=None))
    if row.radius is not None:
        words += f", radius {row.radius:g}"
    return (Cell(words, words),)


def _number(value: float | None) -> Cell:
    return Cell() if value is None else Cell(f"{value:g}", value)


def _place(name: str, order: Iterable[str]) -> float:
    names = list(order)
    return float(names.index(name)) if name in names else float(len(names))
