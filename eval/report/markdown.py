"""The report as Markdown, for a pull request."""

from collections.abc import Sequence

from eval import paper
from eval.report import summary, wording
from eval.report.read import Run
from eval.report.tables import Cell, Column, Table, suite_tables

# Everything that could start markup, end a table's cell or become HTML.
_SPECIAL = "\\`*_{}[]<>#|~&"


def render(runs: Sequence[Run]) -> str:
    """The whole text."""
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} runs compared"
    parts = [f"# Robustness report: {text(title)}"]
    parts += [_about(run) for run in runs]
    parts.append(_notes(runs))
    suites = dict.fromkeys(
        [*wording.SUITES, *(row.suite for run in runs for row in run.rows)],
    )
    for suite in suites:
        tables = suite_tables(runs, suite)
        if tables:
            parts.append(f"## {text(wording.suite(suite))}")
            if suite == "runtime":
                parts.append(f"The paper's task: {paper.runtime_task()}.")
            if suite == "adversarial":
                parts += [text(note) for note in summary.adaptive_notes(runs)]
            parts += [_table(table) for table in tables]
    parts.append("## How to reproduce")
    parts += [_reproduce(run) for run in runs]
    return "\n\n".join(parts) + "\n"


def text(content: str) -> str:
    """Text that stays text: on one line, nothing in it read as markup."""
    flat = " ".join(content.split())
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in flat)


def code(content: str) -> str:
    """A fenced block, with a fence longer than any in the content."""
    fence = "```"
    while fence in content:
        fence += "`"
    return f"{fence}sh\n{content}\n{fence}"


def _about(run: Run) -> str:
    about = run.evaluation
    facts = [about.get(key) for key in ("dataset", "model", "method")]
    if about.get("sparsity"):
        facts.append(f"level {about['sparsity']:g}")
    if about.get("images"):
        facts.append(f"{wording.count(about['images'])} test images")
    described = ", ".join(text(str(fact)) for fact in facts if fact)
    return f"**{text(run.label)}** ({described}). {text(summary.sentence(run))}"


def _notes(runs: Sequence[Run]) -> str:
    lines = ["## Read this before quoting", ""]
    flags = summary.flagged(runs)
    for flag, rows in flags.items():
        meaning = wording.FLAG_MEANINGS.get(flag, wording.UNKNOWN_FLAG)
        lines.append(f"- **{text(flag)}**: {text(meaning)}")
        for run, row in rows:
            where = f"{text(run.label)}: " if len(runs) > 1 else ""
            write = wording.seconds if row.metric == "seconds" else wording.percent
            lines.append(f"  - {where}{text(wording.describe(row))}: {write(row.value)}")
    if not flags:
        lines.append("- No row carries a flag.")
    for words, meaning in summary.columns(runs).items():
        lines.append(f"- Column *{words}*: {text(meaning)}")
    if summary.has_attacks(runs):
        for name, meaning in wording.ATTACKER_MEANINGS.items():
            lines.append(f"- Attacker *{wording.attacker(name)}*: {text(meaning)}")
    lines += [f"- {text(note)}" for note in summary.attack_notes(runs)]
    lines += [f"- {text(caution)}" for caution in summary.cautions(runs)]
    return "\n".join(lines)


def _table(table: Table) -> str:
    headings = "|".join(f" {text(_heading(column))} " for column in table.columns)
    rule = "|".join(" --- " if column.kind == "label" else " ---: " for column in table.columns)
    lines = [f"|{headings}|", f"|{rule}|"]
    lines += [f"|{'|'.join(f' {_cell(cell)} ' for cell in row)}|" for row in table.rows]
    block = "\n".join(lines)
    if table.folded:
        # GitHub needs the blank lines to read the table inside.
        caption = table.caption.replace("&", "&amp;").replace("<", "&lt;")
        return f"<details><summary>{caption}</summary>\n\n{block}\n\n</details>"
    return f"{text(table.caption)}\n\n{block}"


def _heading(column: Column) -> str:
    return f"{column.group}: {column.heading}" if column.group else column.heading


def _cell(cell: Cell) -> str:
    content = text(cell.text)
    if cell.half_interval:
        content += f" ± {cell.half_interval}"
    content = f"**{content}**" if cell.best else content
    return f"⚑ {content}" if cell.flagged else content


def _reproduce(run: Run) -> str:
    about = run.evaluation
    parts = [code(str(about["command"]))] if about.get("command") else []
    listed = summary.provenance(run)
    if listed:
        parts.append(text(listed))
    return "\n\n".join([f"{text(run.label)}:", *parts])
