"""Tables of a report as plain values: rows by setting, columns by run, the paper's numbers beside ours."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from eval import paper
from eval.report import wording
from eval.report.layouts import Cell, Layout, suite_layouts
from eval.report.read import Row, Run

__all__ = ["Cell", "Column", "Table", "suite_tables"]

Kind = Literal["label", "ours", "paper"]
# For every other metric, more is better.
_LESS_IS_BETTER = ("mce", "seconds")


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


def suite_tables(runs: Sequence[Run], suite: str) -> list[Table]:
    """All tables of a suite; empty if no run has rows of it."""
    metrics = dict.fromkeys(row.metric for run in runs for row in run.rows if row.suite == suite)
    tables = []
    for metric in metrics:
        for layout, keep in suite_layouts(suite, metric, runs):
            chosen = [
                [r for r in run.rows if r.suite == suite and r.metric == metric and keep(r)]
                for run in runs
            ]
            if any(chosen):
                tables.append(_table(layout, runs, chosen))
    return tables


def _table(layout: Layout, runs: Sequence[Run], chosen: Sequence[Sequence[Row]]) -> Table:
    several = len(runs) > 1
    lines: dict[tuple[Cell, ...], dict[tuple[int, str], Row]] = {}
    for number, rows in enumerate(chosen):
        for row in rows:
            lines.setdefault(layout.labels(row), {})[number, layout.variant(row)] = row
    columns = [Column(heading, "label") for heading in layout.headings]
    cells = [list(labels) for labels in lines]
    for number, run in enumerate(runs):
        found = {layout.variant(row): layout.order(row) for row in chosen[number]}
        for variant in sorted(found, key=lambda name: found[name]):
            group = run.label if several else ""
            measured = [line.get((number, variant)) for line in lines.values()]
            columns.append(Column(variant, "ours", group))
            for line, found_row in zip(cells, measured, strict=True):
                line.append(_measured(found_row))
            papers = [_paper_cell(run, row) for row in measured]
            if any(cell.text for cell in papers):
                # The words for the paper's smoothing end in its name.
                beside = f"paper, {variant.removesuffix(' (paper)')}"
                columns.append(Column("paper" if len(found) == 1 else beside, "paper", group))
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
