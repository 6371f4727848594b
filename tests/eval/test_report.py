import collections
import html.parser
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from report_files import result, results, sample_arrays, write_evaluation

from eval import report
from eval.report import charts, curves, markdown, summary, tables
from eval.report.read import read_runs

VOID = {"meta", "input", "img", "br", "link", "hr"}


class Page(html.parser.HTMLParser):
    """Collects ids, attributes and texts, and complains of tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.attributes = [], [], []
        self.texts = collections.defaultdict(list)
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, name, value) for name, value in attributes]
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts[self.open[-1]].append(data)


@pytest.fixture
def folder(tmp_path):
    return write_evaluation(tmp_path / "base")


def test_page_is_whole_and_stands_alone(folder, tmp_path):
    other = write_evaluation(tmp_path / "other", "other", rows=results("other", 5))
    html_path, markdown_path = report.write([folder, other], tmp_path / "out")
    assert (html_path, markdown_path) == (
        tmp_path / "out" / "report.html",
        tmp_path / "out" / "report.md",
    )
    text = html_path.read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids)) > 10
    assert not re.search(r"https?://|url\(|@import", text)
    for _, name, value in page.attributes:
        if name in ("src", "href"):
            assert value.startswith(("data:image/png;base64,", "#")), value
        if name == "href":
            assert value[1:] in page.ids
        if name == "aria-labelledby":
            assert set(value.split()) <= set(page.ids)
    assert list(tmp_path.glob("out/.*")) == []
    assert not re.search(
        r"\b(nan|inf|None)\b", re.sub(r"<script.*?</script>", "", text, flags=re.S)
    )


def test_sections_without_rows_are_left_out(tmp_path):
    rows = [result("base", "clean", "clean", 94.0, preprocess="none")]
    folder = write_evaluation(tmp_path / "base", rows=rows, samples=False)
    html_path, markdown_path = report.write([folder], tmp_path)
    page = Page(html_path.read_text())
    titles = ["Read this before quoting", "Clean images", "How to reproduce"]
    assert page.texts["h2"] == titles
    assert "<svg" not in html_path.read_text()
    assert "Corruptions" not in markdown_path.read_text()


def test_names_from_files_are_only_text(tmp_path):
    evil = "<script>alert(1)</script>"
    rows = results(evil)
    rows.append(result(evil, "corruptions", "<img src=x>", 1.0, preprocess="none"))
    rows.append(result(evil, "</section>", "x|y", 1.0, flags=["</script><b>"]))
    folder = write_evaluation(
        tmp_path / "base",
        evil,
        rows=rows,
        class_names=["</script><script>alert(2)</script>", '" onload="x'],
        command="echo </pre><script>",
    )
    html_path, markdown_path = report.write([folder], tmp_path)
    page = Page(html_path.read_text())
    assert sum(tag == "section" for tag, name, _ in page.attributes if name == "id") >= 5
    assert html_path.read_text().count("<script") == 2  # the data and the code
    assert evil in page.texts["h1"]
    data = json.loads(page.texts["script"][0])
    assert data["samples"][0]["name"] == "</script><script>alert(2)</script>"
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert "<script>" not in markdown_path.read_text().split("```")[0].replace("\\<", "")


def test_markdown_keeps_pipes_inside_their_cells(tmp_path):
    rows = [result("base", "corruptions", "a|b*c", 50.0, preprocess="none")]
    folder = write_evaluation(tmp_path / "base", rows=rows)
    _, path = report.write([folder], tmp_path)
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    assert cells == [3, 3, 3]
    assert "a\\|b\\*c" in lines[-1]


def test_fence_is_longer_than_any_in_the_command():
    assert markdown.code("echo ```` x").startswith("`````sh\n")


def test_paper_stands_beside_ours_and_the_best_is_bold(folder, tmp_path):
    better = write_evaluation(tmp_path / "better", "better", rows=results("better", 7))
    runs = read_runs([folder, better])
    mean = tables.suite_tables(runs, "corruptions")[0]
    headings = [(column.group, column.heading) for column in mean.columns]
    of_run = ["as they are", "paper, as they are", "smoothed (paper)", "paper, smoothed"]
    assert headings == [("", "corruption")] + [
        (run, heading) for run in ("base", "better") for heading in of_run
    ]
    line = next(row for row in mean.rows if row[0].text == "gaussian noise")
    assert [cell.text for cell in line[1:5]] == ["62.00", "45.90", "62.00", "72.57"]
    assert [cell.best for cell in line] == [False] * 7 + [True, False]
    assert line[1].half_interval == "1.00"
    assert "n = 500" in line[1].title
    assert mean.rows[-1][0].text == "mean over all"
    _, path = report.write([folder, better], tmp_path)
    assert "| **69.00 ± 1.00** |" in path.read_text()


def test_seconds_and_mce_are_best_when_least(tmp_path):
    folders = []
    for name, value in (("slow", 3.0), ("fast", 2.0)):
        rows = [
            result(name, "runtime", "SVD", value, metric="seconds", low=None, high=None),
            result(name, "corruptions", "mean", 10 * value, metric="mce", preprocess="none"),
        ]
        folders.append(write_evaluation(tmp_path / name, name, rows=rows))
    runs = read_runs(folders)
    for suite in ("runtime", "corruptions"):
        (table,) = tables.suite_tables(runs, suite)
        best = [c.group for c, cell in zip(table.columns, table.rows[0], strict=True) if cell.best]
        assert best == ["fast"]
    runtime = tables.suite_tables(runs, "runtime")[0]
    assert [column.heading for column in runtime.columns] == ["what", *["seconds", "paper"] * 2]
    assert runtime.rows[0][2].text == "373.24"


def test_every_measured_row_is_in_a_table(folder):
    (run,) = read_runs([folder])
    cells = collections.Counter()
    for suite in ("clean", "corruptions", "adversarial", "runtime"):
        for table in tables.suite_tables([run], suite):
            for line in table.rows:
                for column, cell in zip(table.columns, line, strict=True):
                    cells[suite] += column.kind == "ours" and cell.text != ""
    assert cells == collections.Counter(row.suite for row in run.rows)


def test_one_run_has_a_column_per_attacker_from_weak_to_strong(folder):
    (table,) = tables.suite_tables(read_runs([folder]), "adversarial")
    ours = [column.heading for column in table.columns if column.kind == "ours"]
    assert ours == ["bare network", "unaware", "exact", "any"]
    pgd = table.rows[0]
    assert [cell.text for cell in pgd][:6] == ["PGD", "8/255", "3.00", "37.95", "40.00", "49.45"]
    # The weakest attacker leaves the most: that is no merit.
    assert not any(cell.best for line in table.rows for cell in line)


def test_points_land_where_the_axes_say():
    axis = charts.Axis("severity", 1, 5, ((1, "1"), (5, "5")))
    points = (charts.Point(1, 100, 90, 100), charts.Point(3, 50, 40, 60), charts.Point(5, 0, 0, 10))
    chart = charts.Chart("Fog", axis, charts.percent_axis([]), (charts.Series("raw", points),))
    area = charts.frame(chart)
    middle = ((area.left + area.right) / 2, (area.top + area.bottom) / 2)
    text = charts.svg(chart, itertools.count(1))
    marks = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', text)
    wanted = [(area.left, area.top), middle, (area.right, area.bottom)]
    np.testing.assert_allclose(np.array(marks, float), wanted, atol=0.05)
    line = re.search(r'class="line s0" d="M([^"]+)"', text)[1]
    places = [[float(number) for number in place.split()] for place in line.split("L")]
    np.testing.assert_allclose(places, wanted, atol=0.05)
    band = re.search(r'class="band s0" d="M([^"]+)Z"', text)[1].split("L")
    assert len(band) == 6
    tenth = (area.bottom - area.top) / 10
    heights = [float(place.split()[1]) for place in band]
    lows = [area.bottom, middle[1] + tenth, area.top + tenth]
    np.testing.assert_allclose(heights[3:], lows, atol=0.05)
    assert "raw: 100.0 at 1, 50.0 at 3, 0.0 at 5." in text


@pytest.mark.parametrize("values", [[], [94.1], [90.0], [0.0], [100.0], [85.2, 94.4]])
def test_percent_axis_holds_the_values(values):
    axis = charts.percent_axis(values, from_zero=False)
    assert 0 <= axis.low < axis.high <= 100
    assert all(axis.low <= value <= axis.high for value in values)
    assert all(axis.low <= tick <= axis.high for tick, _ in axis.ticks)


def test_a_single_point_has_a_bar_and_no_line():
    axis = charts.Axis("epsilon", 0, 8, ((0, "0"), (8, "8")))
    series = charts.Series("exact", (charts.Point(8, 5, 3, 7),))
    text = charts.svg(charts.Chart("PGD", axis, charts.percent_axis([]), (series,)), iter([1]))
    assert 'class="bar s0"' in text
    assert 'class="line' not in text
    assert "nan" not in text


def test_labels_do_not_overlap_and_stay_within():
    places = charts.spread([10.0, 11.0, 12.0, 99.0, 100.0], 0.0, 100.0)
    assert places == sorted(places)
    assert min(b - a for a, b in itertools.pairwise(places)) >= 10.9
    assert places[0] >= 0
    assert places[-1] <= 100


def test_curves_follow_the_rows(folder):
    (run,) = read_runs([folder])
    fog = curves.suite_charts([run], "corruptions")
    assert [chart.title for chart in fog] == ["Gaussian noise", "Shot noise"]
    assert [series.label for series in fog[0].series] == ["as is", "smoothed"]
    assert [(p.x, p.y) for p in fog[0].series[0].points] == [(1, 71), (2, 62), (3, 53)]
    (clean,) = curves.suite_charts([run], "clean")
    assert [p.x for p in clean.series[0].points] == [0.3, 0.6, 1.0]
    attacks = curves.suite_charts([run], "adversarial")
    assert [p.x for p in attacks[0].series[0].points] == [8, 16]


def test_check_at_a_huge_epsilon_does_not_squeeze_the_charts(tmp_path):
    check = {"epsilon": 64 / 255, "attacker": "exact", "preprocess": "paper"}
    rows = [*results("base"), result("base", "adversarial", "pgd", 1.0, **check)]
    (run,) = read_runs([write_evaluation(tmp_path / "base", rows=rows)])
    assert all(chart.x.high == 16 for chart in curves.suite_charts([run], "adversarial"))
    (table,) = tables.suite_tables([run], "adversarial")
    assert "64/255" in [line[1].text for line in table.rows]


def test_headlines_take_the_runs_level_and_the_strongest_attacker(folder):
    clean, corrupted, worst = summary.headlines(read_runs([folder])[0])
    values = [[number.row.value for number in line.numbers] for line in (clean, corrupted, worst)]
    assert values == [[94, pytest.approx(60 + 34 * 0.6)], [62, 62], [3, 4]]
    assert "8/255" in worst.title


def test_unaware_attacker_alone_is_named_as_such(tmp_path):
    fields = {"epsilon": 8 / 255, "attacker": "unaware", "preprocess": "paper"}
    rows = [result("base", "adversarial", "pgd", 40.0, **fields)]
    (run,) = read_runs([write_evaluation(tmp_path / "base", rows=rows)])
    assert "unaware attacker only" in summary.sentence(run)


def test_flags_are_explained(folder, tmp_path):
    html_path, markdown_path = report.write([folder], tmp_path)
    for text in (html_path.read_text(), markdown_path.read_text()):
        assert "had no gradient to follow" in text
        assert "no explanation for this flag" in text
        assert "not eligible for RobustBench" in text
        assert "ResNet-18" in text
        without_style = re.sub(r"<style>.*?</style>", "", text, flags=re.S)
        assert without_style.count("⚑") == 1  # in the table, at the number


def test_quick_attacks_are_called_quick(tmp_path):
    folder = write_evaluation(tmp_path / "base", attack_options={"budget": "quick"})
    assert any("quick budget" in text for text in summary.cautions(read_runs([folder])))


DAMAGE = {
    "cut in the middle": ('{"run": "ba', "line 2: not JSON"),
    "not a number": ('{"suite": "a", "name": "b", "metric": "c", "value": NaN}', "line 2: NaN"),
    "no value": ('{"suite": "a", "name": "b", "metric": "c"}', 'line 2: .*"value", got None'),
    "a list": ("[]", "line 2: expected an object"),
    "not a bool": (
        '{"suite": "a", "name": "b", "metric": "c", "value": 1, "smoothed": 1}',
        'line 2: expected bool or null "smoothed", got 1',
    ),
    "another run": (json.dumps(result("x", "a", "b", 1.0)), "line 2: .*'base', got 'x'"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_line_is_named_and_nothing_is_overwritten(folder, tmp_path, damage):
    html_path, markdown_path = report.write([folder], tmp_path)
    before = html_path.read_bytes(), markdown_path.read_bytes()
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines()
    line, message = DAMAGE[damage]
    path.write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    with pytest.raises(report.ReportError, match=message) as caught:
        report.write([folder], tmp_path)
    assert str(path) in str(caught.value)
    assert before == (html_path.read_bytes(), markdown_path.read_bytes())


def test_last_line_cut_off_is_left_out_and_said(folder, tmp_path):
    path = folder / "results.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"run": "base", "sui')
    (run,) = read_runs([folder])
    assert len(run.rows) == len(whole.splitlines())
    assert run.cut_off
    _, markdown_path = report.write([folder], tmp_path)
    assert "last line of the results is incomplete" in markdown_path.read_text()


def test_a_setting_measured_twice_counts_as_measured_last(tmp_path):
    rows = [result("base", "clean", "clean", value, preprocess="none") for value in (90.0, 91.0)]
    (run,) = read_runs([write_evaluation(tmp_path / "base", rows=rows)])
    assert [row.value for row in run.rows] == [91.0]


def test_run_without_rows_is_an_error(tmp_path):
    folder = write_evaluation(tmp_path / "base", rows=[])
    with pytest.raises(report.ReportError, match=r"no rows for the run 'base'"):
        report.write([folder], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fields", [{"sparsity": "0.6"}, {"class_names": "cat"}, {"images": []}])
def test_evaluation_of_wrong_types_is_an_error(tmp_path, fields):
    folder = write_evaluation(tmp_path / "base", **fields)
    with pytest.raises(report.ReportError, match=rf"evaluation.json: .*{next(iter(fields))}"):
        report.write([folder], tmp_path)


@pytest.mark.parametrize("name", ["evaluation.json", "results.jsonl"])
def test_missing_file_is_named(folder, tmp_path, name):
    (folder / name).unlink()
    with pytest.raises(report.ReportError, match=f"{name}: not found"):
        report.write([folder], tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"down": np.zeros((2, 6, 5), np.uint8)}, r"down must be uint8 \(2, 5, 5\)"),
        ({"images": np.zeros((2, 6, 5, 3))}, "images must be uint8"),
        ({"panel_rows": np.array(["one"])}, "panels must be"),
    ],
)
def test_samples_of_wrong_shape_are_an_error(folder, tmp_path, changes, message):
    np.savez(folder / "samples.npz", **sample_arrays() | changes)
    with pytest.raises(report.ReportError, match=message):
        report.write([folder], tmp_path)


def test_runs_of_one_name_are_told_apart_by_folder(tmp_path):
    folders = [write_evaluation(tmp_path / name) for name in ("one", "two")]
    assert [run.label for run in read_runs(folders)] == ["base (one)", "base (two)"]
    with pytest.raises(report.ReportError, match="two of the folders"):
        read_runs([folders[0], folders[0]])
    with pytest.raises(report.ReportError, match="at least one folder"):
        read_runs([])


def test_page_of_small_images_stays_below_a_megabyte(tmp_path):
    random = np.random.default_rng(0)
    # Noise: no picture compresses worse.
    arrays = sample_arrays() | {
        "images": random.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8),
        "down": random.integers(1, 256, (8, 31, 32), dtype=np.uint8),
        "right": random.integers(1, 256, (8, 32, 31), dtype=np.uint8),
        "labels": np.zeros(8, np.int32),
        "panels": random.integers(0, 256, (8, 3, 3, 32, 32, 3), dtype=np.uint8),
        "panel_columns": np.array(["image", "Grad-CAM", "LRP"]),
    }
    folder = write_evaluation(tmp_path / "base", samples=False)
    np.savez(folder / "samples.npz", **arrays)
    html_path, _ = report.write([folder], tmp_path)
    assert html_path.stat().st_size < 1_000_000


def test_report_never_imports_jax(folder, tmp_path):
    code = (
        "import sys; from pathlib import Path; from eval import report;"
        f"report.write([Path({str(folder)!r})], Path({str(tmp_path)!r}));"
        "print([name for name in sys.modules if name.split('.')[0] in ('jax', 'isvs', 'train')])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_half_interval_of_a_boundary_value_is_finite(tmp_path):
    rows = [result("base", "clean", "clean", 0.0, preprocess="none", low=0.0, high=0.7)]
    (run,) = read_runs([write_evaluation(tmp_path / "base", rows=rows)])
    (table,) = tables.suite_tables([run], "clean")
    assert math.isclose(float(table.rows[0][1].half_interval), 0.35)
