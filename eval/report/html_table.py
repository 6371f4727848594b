"""A table as HTML that sorts by its headings."""

import itertools
from collections.abc import Sequence
from html import escape

from eval.report.tables import Cell, Column, Table


def render_table(table: Table) -> str:
    """The table in a box of its own that scrolls sideways where the page is narrow."""
    # Outside the box, so that it does not scroll away; whoever folds the table has shown it already.
    caption = "" if table.folded else f'<p class="caption">{escape(table.caption)}</p>'
    lines = "".join(_line(cells, table.columns) for cells in table.rows)
    return (
        f'{caption}<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(table.caption)}"><table data-sortable><thead>{_groups(table.columns)}<tr>'
        f"{''.join(_heading(column) for column in table.columns)}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )


def _groups(columns: Sequence[Column]) -> str:
    """A line above the headings with the runs, if there are several."""
    if not any(column.group for column in columns):
        return ""
    cells = []
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        span = len(list(members))
        if group:
            cells.append(f'<th colspan="{span}" scope="colgroup">{escape(group)}</th>')
        else:
            cells.append(f'<td colspan="{span}"></td>')
    return f"<tr>{''.join(cells)}</tr>"


def _heading(column: Column) -> str:
    return (
        f'<th scope="col" class="{column.kind}" aria-sort="none">'
        f'<button type="button">{escape(column.heading)}</button></th>'
    )


def _line(cells: Sequence[Cell], columns: Sequence[Column]) -> str:
    parts = []
    for place, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        key = "" if cell.sort is None else f' data-sort="{escape(str(cell.sort))}"'
        title = f' title="{escape(cell.title)}"' if cell.title else ""
        text = escape(cell.text)
        if cell.half_interval:
            text += f' <span class="interval">± {escape(cell.half_interval)}</span>'
        if cell.best:
            text = f"<strong>{text}</strong>"
        if cell.flagged:
            text = f'<span class="flag-mark" role="img" aria-label="flagged">⚑</span> {text}'
        name, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
        parts.append(f'<{name}{scope} class="{column.kind}"{key}{title}>{text}</{name}>')
    return f"<tr>{''.join(parts)}</tr>"
