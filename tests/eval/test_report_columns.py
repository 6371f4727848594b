"""What a report shows of each way to preprocess test images, and that it reads files of earlier versions."""

import dataclasses
import re

import pytest
from report_files import result, results, write_evaluation

from eval import preprocessing, report
from eval.report import curves, summary, tables, wording
from eval.report.read import read_runs

FOUR = ("none", "paper", "soft", "auto")
WORDS = ["as they are", "smoothed (paper)", "soft", "automatic"]


def four_columns(folder, name="base", bonus=0.0):
    return write_evaluation(folder / name, name, rows=results(name, bonus, FOUR))


def earlier(rows):
    """The lines as the version before wrote them."""
    smoothed = {"none": False, "paper": True, None: None}
    return [
        {k: v for k, v in row.items() if k != "preprocess"}
        | {"smoothed": smoothed[row["preprocess"]]}
        for row in rows
    ]


@pytest.fixture
def run(tmp_path):
    (run,) = read_runs([four_columns(tmp_path)])
    return run


def ours(table):
    return [column.heading for column in table.columns if column.kind == "ours"]


def test_every_preprocessing_has_words():
    assert tuple(wording.PREPROCESSING) == preprocessing.NAMES
    assert list(wording.PREPROCESSING.values()) == WORDS
    for words in (wording.IN_CHARTS, wording.PREPROCESSING_MEANINGS):
        assert words.keys() == wording.PREPROCESSING.keys()


def test_files_of_an_earlier_version_give_the_same_report(tmp_path):
    rows = results("base")
    new = write_evaluation(tmp_path / "new", rows=rows)
    old = write_evaluation(tmp_path / "old", rows=earlier(rows))
    assert read_runs([old])[0].rows == read_runs([new])[0].rows
    pages = [report.write([folder], folder) for folder in (old, new)]
    for ours, theirs in zip(*pages, strict=True):
        assert ours.read_text() == theirs.read_text()


def test_an_earlier_row_and_a_later_one_of_the_same_setting_are_one(tmp_path):
    first = result("base", "clean", "clean", 90.0, preprocess="none")
    rows = [*earlier([first]), first | {"value": 91.0}]
    (run,) = read_runs([write_evaluation(tmp_path / "base", rows=rows)])
    assert [(row.preprocess, row.value) for row in run.rows] == [("none", 91.0)]


def test_a_column_for_each_and_the_papers_numbers_beside_two(run):
    mean, each = tables.suite_tables([run], "corruptions")
    assert [column.heading for column in mean.columns] == [
        *("corruption", "as they are", "paper, as they are"),
        *("smoothed (paper)", "paper, smoothed", "soft", "automatic"),
    ]
    assert ours(each) == WORDS
    (clean,) = tables.suite_tables([run], "clean")
    assert [line[0].text for line in clean.rows] == [
        *("smoothed, level 0.30", "smoothed, level 0.60", "smoothed, level 1.00"),
        *("as they are", "soft", "automatic"),
    ]


@pytest.mark.parametrize("several", [False, True])
def test_every_row_is_in_a_table(tmp_path, several):
    runs = read_runs([four_columns(tmp_path, name) for name in ("one", "two")[: 1 + several]])
    for suite in ("clean", "corruptions", "adversarial"):
        shown = sum(
            column.kind == "ours" and cell.text != ""
            for table in tables.suite_tables(runs, suite)
            for line in table.rows
            for column, cell in zip(table.columns, line, strict=True)
        )
        assert shown == sum(row.suite == suite for run in runs for row in run.rows)


def test_several_defences_stand_side_by_side_by_attacker(run):
    worst, each = tables.suite_tables([run], "adversarial")
    assert each.folded and not worst.folded
    assert ours(worst) == ours(each) == WORDS
    lines = [[cell.text for cell in line] for line in worst.rows if line[1].text == "8/255"]
    assert lines == [
        ["worst case", "8/255", "bare network", "3.00", "", "", ""],
        ["worst case", "8/255", "unaware", "", "40.00", "40.00", "40.00"],
        ["worst case", "8/255", "exact", "", "4.50", "4.50", "4.50"],
        ["worst case", "8/255", "any", "", "4.00", "4.00", "4.00"],
    ]
    pgd = next(line for line in each.rows if line[1].text == "8/255" and line[2].text == "unaware")
    beside = [c.text for c, column in zip(pgd, each.columns, strict=True) if column.kind == "paper"]
    assert beside == ["", "49.45"]


def test_the_page_says_that_adaptive_preprocessing_can_be_fooled(run, tmp_path):
    page, text = report.write([tmp_path / "base"], tmp_path)
    for content in (page.read_text(), text.read_text()):
        plain = content.replace("&#x27;", "'")
        # Before the numbers, and again where they are.
        assert plain.count("adaptive preprocessing can be fooled") == 2
        assert plain.count("the exact attacker's row is the one to read") == 2
        assert "did not attack the automatic smoothing" not in plain
    only = write_evaluation(tmp_path / "two", rows=results("base"))
    assert summary.adaptive_notes(read_runs([only])) == []


def test_automatic_without_the_exact_attacker_is_called_untested(tmp_path):
    rows = [row for row in results("base", names=FOUR) if row["attacker"] != "exact"]
    (run,) = read_runs([write_evaluation(tmp_path / "base", rows=rows)])
    assert summary.adaptive_notes([run]) == [wording.ADAPTIVE, wording.ADAPTIVE_UNTESTED]


def test_headlines_have_a_number_for_each(run):
    words = [[number.words for number in line.numbers] for line in summary.headlines(run)]
    assert words == [
        ["as they are", "smoothed at 0.6 (paper)", "soft", "automatic"],
        WORDS,
        ["bare network", *(f"{word} under any attacker" for word in WORDS[1:])],
    ]
    assert "62.0\N{NO-BREAK SPACE}% soft and 62.0\N{NO-BREAK SPACE}% automatic" in summary.sentence(
        run
    )


def test_lines_of_one_run_differ_in_colour_and_dash(run):
    noise = curves.suite_charts([run], "corruptions")[0]
    assert [line.label for line in noise.series] == ["as is", "smoothed", "soft", "auto"]
    assert len({line.colour for line in noise.series}) == 4
    assert len({line.dash for line in noise.series}) == 4
    (clean,) = curves.suite_charts([run], "clean")
    across = {line.label: {point.y for point in line.points} for line in clean.series[1:]}
    assert across == {"as is": {94.0}, "soft": {94.0}, "auto": {94.0}}


def test_lines_of_several_runs_differ_in_letter_and_dash(tmp_path):
    runs = read_runs([four_columns(tmp_path, name) for name in ("one", "two")])
    noise = curves.suite_charts(runs, "corruptions")[0]
    labels = [line.label for line in noise.series]
    assert labels == ["A as is", "A", "A soft", "A auto", "B as is", "B", "B soft", "B auto"]
    page, _ = report.write([tmp_path / "one", tmp_path / "two"], tmp_path)
    legend = "dashed: as they are, solid: smoothed (paper), dotted: soft, dash-dotted: automatic"
    assert legend in page.read_text()
    for dash in ("dashed", "dotted", "dash-dotted"):
        assert re.search(rf'class="line s\d {dash}"', page.read_text())


def test_each_defence_has_a_chart_of_its_worst_case(run):
    charts = curves.suite_charts([run], "adversarial")
    titles = [f"Worst case, {word}" for word in WORDS[1:]]
    assert [chart.title for chart in charts] == titles
    for chart in charts:
        assert [line.label for line in chart.series] == ["bare network", "unaware", "exact", "any"]
        assert all(len(line.points) == 2 for line in chart.series)


def test_a_run_that_smooths_in_its_own_way_says_so(tmp_path):
    fields = {"stiffness": 5.0, "speckle_area": 2}
    runs = read_runs([write_evaluation(tmp_path / "base", **fields)])
    (caution,) = [text for text in summary.cautions(runs) if "This run's method smooths" in text]
    assert "ties of stiffness 5 and after removing speckle of up to 2 pixels" in caution
    plain = read_runs([write_evaluation(tmp_path / "plain", stiffness=None, speckle_area=None)])
    assert not any("This run's method smooths" in text for text in summary.cautions(plain))


def test_means_over_different_corruptions_are_said_not_to_compare(tmp_path):
    rows = [
        result("base", "corruptions", "mean", 60.0, preprocess=name, corruptions=count)
        for name, count in (("none", 18), ("paper", 18), ("soft", 3))
    ]
    (run,) = read_runs([write_evaluation(tmp_path / "base", rows=rows)])
    (caution,) = [text for text in summary.cautions([run]) if "do not compare" in text]
    assert "as they are 18, smoothed (paper) 18, soft 3." in caution
    alike = dataclasses.replace(run, rows=run.rows[:2])
    assert not any("do not compare" in text for text in summary.cautions([alike]))
