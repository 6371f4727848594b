"""The report as one self-contained page: no network, no fonts or scripts from elsewhere."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from eval import paper
from eval.report import charts, curves, pictures, summary, wording
from eval.report.html_table import render_table
from eval.report.read import Row, Run
from eval.report.tables import suite_tables

_INTRODUCTIONS = {
    "clean": "Test images as they are, and preprocessed; as in the paper, at each level. The level is the fraction of "
    "edges kept: 1 is the image itself, 0 its mean colour.",
    "corruptions": "Images are corrupted first and preprocessed then, all columns from the same corrupted images.",
    "lowres": "Images scaled down, then up again by the nearest pixel.",
    "frequency": "Only the high or only the low frequencies of each image.",
    "runtime": "The paper's task: {task}.",
}
# Nothing may be loaded, even if a name in the data managed to ask for it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_LONG_LIST = 3


def render(runs: Sequence[Run]) -> str:
    """The whole page."""
    ids = itertools.count(1)
    sections: list[tuple[str, str, str]] = [("notes", "Read this before quoting", _notes(runs))]
    viewed = next((run for run in runs if run.samples is not None), None)
    if viewed is not None:
        sections.append(("scales", "The scale space, live", pictures.VIEWER))
    order = dict.fromkeys(
        [*wording.SUITES, *(row.suite for run in runs for row in run.rows)],
    )
    for number, suite in enumerate(order):
        if any(row.suite == suite for run in runs for row in run.rows):
            sections.append((f"suite-{number}", wording.suite(suite), _suite(runs, suite, ids)))
    panels = "".join(pictures.panels(run, several=len(runs) > 1) for run in runs)
    if panels:
        sections.append(("panels", "What the network looks at", panels))
    sections.append(("reproduce", "How to reproduce", _reproduce(runs, ids)))
    body = "".join(
        f'<section id="{name}"><h2>{escape(title)}</h2>{content}</section>'
        for name, title, content in sections
        if content
    )
    links = "".join(
        f'<a href="#{name}">{escape(title)}</a>' for name, title, content in sections if content
    )
    header = f'{_header(runs)}<nav aria-label="Sections">{links}</nav>'
    return _document(_title(runs), f"{header}<main>{body}</main>", pictures.sample_data(viewed))


def _document(title: str, body: str, data: str) -> str:
    here = Path(__file__)
    style = here.with_name("page.css").read_text(encoding="utf-8")
    script = here.with_name("page.js").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>{body}\n"
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>\n{script}</script></body></html>\n"
    )


def _title(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return f"{runs[0].label}: robustness report"
    return f"{len(runs)} runs: robustness report"


def _header(runs: Sequence[Run]) -> str:
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} runs compared"
    text = summary.sentence(runs[0]) if len(runs) == 1 else summary.comparison(runs)
    cards = "".join(_card(run, several=len(runs) > 1) for run in runs)
    return (
        f'<header><p class="kind">Robustness report</p><h1>{escape(title)}</h1>'
        f'<p class="summary">{escape(text)}</p>{cards}</header>'
    )


def _card(run: Run, *, several: bool) -> str:
    about = run.evaluation
    facts = [
        ("dataset", about.get("dataset")),
        ("model", about.get("model")),
        ("method", about.get("method")),
        ("level", f"{about['sparsity']:g}" if about.get("sparsity") else None),
        ("test images", wording.count(about["images"]) if about.get("images") else None),
        ("weights", about.get("weights")),
    ]
    terms = "".join(
        f"<div><dt>{name}</dt><dd>{escape(str(value))}</dd></div>" for name, value in facts if value
    )
    tiles = "".join(_tile(line) for line in summary.headlines(run))
    heading = f"<h2>{escape(run.label)}</h2>" if several else ""
    return (
        f'<div class="card">{heading}<dl class="facts">{terms}</dl>'
        f'<div class="tiles">{tiles}</div></div>'
    )


def _tile(line: summary.Headline) -> str:
    numbers = "".join(map(_tile_number, line.numbers))
    return f'<div class="tile"><h3>{escape(line.title)}</h3>{numbers}</div>'


def _tile_number(number: summary.Number) -> str:
    value, colour = number.row.value, curves.treatment_colour(number.row.preprocess or "none")
    width = min(max(value, 0.0), 100.0)
    return (
        f"<p><strong>{value:.1f}<small> %</small></strong> <span>{escape(number.words)}</span></p>"
        f'<div class="meter s{colour % charts.COLOURS}" aria-hidden="true">'
        f'<i style="width:{width:.1f}%"></i></div>'
    )


def _notes(runs: Sequence[Run]) -> str:
    parts = []
    flags = summary.flagged(runs)
    for flag, rows in flags.items():
        meaning = wording.FLAG_MEANINGS.get(flag, wording.UNKNOWN_FLAG)
        parts.append(f'<h3 class="flag">{escape(flag)}</h3><p>{escape(meaning)}</p>')
        parts.append(_flagged_rows(rows, several=len(runs) > 1))
    if not flags:
        parts.append("<p>No row carries a flag.</p>")
    columns = summary.columns(runs)
    if columns:
        parts.append(f"<h3>Columns</h3>{_terms(columns)}")
    notes = summary.attack_notes(runs)
    if notes:
        parts.append(f"<h3>Attackers</h3>{_paragraphs(notes)}")
    cautions = summary.cautions(runs)
    if cautions:
        items = "".join(f"<li>{escape(text)}</li>" for text in cautions)
        parts.append(f"<h3>Before comparing</h3><ul>{items}</ul>")
    return f'<div class="box">{"".join(parts)}</div>'


def _flagged_rows(rows: Sequence[tuple[Run, Row]], *, several: bool) -> str:
    items = []
    for run, row in rows:
        write = wording.seconds if row.metric == "seconds" else wording.percent
        where = f"{run.label}: " if several else ""
        text = f"{where}{wording.suite(row.suite).lower()}, {wording.describe(row)}"
        items.append(f"<li>{escape(text)}: {write(row.value)}</li>")
    listed = f"<ul>{''.join(items)}</ul>"
    if len(rows) <= _LONG_LIST:
        return listed
    return f"<details><summary>{len(rows)} rows</summary>{listed}</details>"


def _attackers(runs: Sequence[Run]) -> str:
    meanings = {wording.attacker(n): wording.ATTACKER_MEANINGS[n] for n in wording.ATTACKERS}
    ran = ", ".join(wording.attacker(name) for name in summary.attackers(runs))
    return (
        f"<p>Attackers differ in what they know of the smoothing. Run here: {ran}.</p>"
        f"{_paragraphs(summary.adaptive_notes(runs))}{_terms(meanings)}"
    )


def _terms(meanings: Mapping[str, str]) -> str:
    terms = "".join(f"<dt>{escape(n)}</dt><dd>{escape(text)}</dd>" for n, text in meanings.items())
    return f'<dl class="terms">{terms}</dl>'


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _suite(runs: Sequence[Run], suite: str, ids: Iterator[int]) -> str:
    text = _INTRODUCTIONS.get(suite, "").format(task=paper.runtime_task())
    parts = [f"<p>{text}</p>" if text else ""]
    if suite == "adversarial":
        parts.append(_attackers(runs))
    drawn = curves.suite_charts(runs, suite)
    if drawn:
        small = " many" if len(drawn) > 1 else ""
        figures = "".join(
            f"<figure><figcaption>{escape(chart.title)}</figcaption>{charts.svg(chart, ids)}"
            "</figure>"
            for chart in drawn
        )
        parts.append(f'{_legend(runs, suite)}<div class="charts{small}">{figures}</div>')
    for table in suite_tables(runs, suite):
        rendered = render_table(table)
        if table.folded:
            rendered = f"<details><summary>{escape(table.caption)}</summary>{rendered}</details>"
        parts.append(rendered)
    return "".join(parts)


def _legend(runs: Sequence[Run], suite: str) -> str:
    """Which colour is which; the lines carry the same names at their ends."""
    letters = curves.run_letters(runs)
    drawn = wording.preprocessings(row for run in runs for row in run.rows if row.suite == suite)
    if suite == "adversarial":
        entries = [
            (wording.attacker(name), list(wording.ATTACKERS).index(name))
            for name in summary.attackers(runs)
        ]
    elif len(runs) == 1:
        entries = [
            (_with_dash(wording.preprocess(name), name), curves.treatment_colour(name))
            for name in drawn
        ]
    else:
        entries = [
            (f"{letter} {run.label}", k)
            for k, (letter, run) in enumerate(zip(letters, runs, strict=True))
        ]
    items = [
        f'<li><i class="key s{colour % charts.COLOURS}"></i>{escape(name)}</li>'
        for name, colour in entries
    ]
    if len(runs) > 1 and suite == "adversarial":
        items += [
            f"<li>{letter}: {escape(run.label)}</li>"
            for letter, run in zip(letters, runs, strict=True)
        ]
    elif len(runs) > 1:
        dashes = [f"{curves.treatment_dash(name)}: {wording.preprocess(name)}" for name in drawn]
        items.append(f"<li>{escape(', '.join(dashes))}</li>")
    return f'<ul class="legend">{"".join(items)}<li>shaded: 95 % interval</li></ul>'


def _with_dash(words: str, preprocess: str) -> str:
    dash = curves.treatment_dash(preprocess)
    return words if dash == "solid" else f"{words} ({dash})"


def _reproduce(runs: Sequence[Run], ids: Iterator[int]) -> str:
    parts = []
    for run in runs:
        about = run.evaluation
        if len(runs) > 1:
            parts.append(f"<h3>{escape(run.label)}</h3>")
        if about.get("command"):
            name = f"command-{next(ids)}"
            parts.append(
                f'<div class="command"><pre id="{name}">{escape(str(about["command"]))}</pre>'
                f'<button type="button" data-copy="{name}">Copy</button></div>'
            )
        listed = summary.provenance(run)
        parts.append(f'<p class="versions">{escape(listed)}</p>' if listed else "")
    return "".join(parts)
