"""Rows and batches on disk: whole lines, exact intervals, nothing lost and nothing twice."""

import json

import numpy as np
import pytest
import scipy.stats

from eval.results import BATCHES, RESULTS, Cell, Results, accuracy, mean, wilson

CELL = Cell("corruptions", "gaussian_noise", severity=3, preprocess="paper", sparsity=0.6)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (3, 10), (931, 1000), (1, 7)])
def test_the_interval_is_wilsons(hits, n):
    expected = scipy.stats.binomtest(hits, n).proportion_ci(0.95, "wilson")
    assert wilson(hits, n) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_a_line_has_the_keys_that_were_promised(tmp_path):
    Results(tmp_path, "a").write(accuracy(CELL, np.array([True, False, True, True])))
    (line,) = map(json.loads, (tmp_path / RESULTS).read_text().splitlines())
    promised = (
        *("run", "suite", "name", "severity", "epsilon", "attacker", "preprocess", "sparsity"),
        *("metric", "value", "n"),
    )
    assert list(line)[: len(promised)] == list(promised)
    assert line["value"] == 75 and line["n"] == 4 and line["run"] == "a"
    assert line["epsilon"] is None and line["preprocess"] == "paper"
    assert line["low"] < 75 < line["high"]


def test_rows_come_back_and_are_written_once(tmp_path):
    row = accuracy(CELL, np.array([True, False]), flags=("zero gradients",), extra={"radius": 6})
    Results(tmp_path, "a").write(row)
    again = Results(tmp_path, "a")
    assert again.has(CELL) and not again.has(CELL._replace(severity=4))
    assert again.read("corruptions") == [row]
    again.write(row)
    assert len((tmp_path / RESULTS).read_text().splitlines()) == 1
    newer = accuracy(CELL, np.array([True, True]))
    again.write(newer)
    assert len((tmp_path / RESULTS).read_text().splitlines()) == 2
    assert Results(tmp_path, "a").read("corruptions") == [newer]  # the last line counts


def test_the_mean_of_rows():
    rows = [
        accuracy(CELL._replace(severity=level), np.arange(10) < right)
        for level, right in ((1, 9), (2, 4))
    ]
    row = mean(CELL._replace(severity=None), rows)
    assert row.value == 65 and row.n == 10
    assert row.low == pytest.approx((rows[0].low + rows[1].low) / 2)


@pytest.mark.parametrize("count", [1, 7, 8, 200])
def test_batches_come_back(count, tmp_path, rng=np.random.default_rng(0)):  # noqa: B008
    signs = {"x": rng.random(count) < 0.5, CELL.key: rng.random(count) < 0.5}
    Results(tmp_path, "a").write_batch(3, signs)
    again = Results(tmp_path, "a")
    assert again.batch([CELL], 2) == {} and again.batch([CELL._replace(severity=4)], 3) == {}
    found = again.batch([CELL], 3)
    assert found.keys() == signs.keys()
    assert all(np.array_equal(found[name], signs[name]) for name in signs)


def test_cells_are_found_whatever_was_asked_for_with_them(tmp_path):
    soft, auto = CELL._replace(preprocess="soft"), CELL._replace(preprocess="auto")
    results = Results(tmp_path, "a")
    results.write_batch(0, {CELL.key: np.array([True]), soft.key: np.array([False])})
    found = results.batch([CELL, auto], 0)
    assert found.keys() == {CELL.key} and found[CELL.key].tolist() == [True]
    results.write_batch(0, {auto.key: np.array([False]), "x": np.array([True])})
    assert Results(tmp_path, "a").batch([CELL, auto], 0).keys() == {CELL.key, auto.key, "x"}


def test_a_line_cut_off_by_a_crash_is_done_again(tmp_path):
    results = Results(tmp_path, "a")
    results.write_batch(0, {CELL.key: np.ones(3, bool)})
    results.write_batch(1, {CELL.key: np.ones(3, bool)})
    path = tmp_path / BATCHES
    path.write_bytes(path.read_bytes()[:-7])
    results = Results(tmp_path, "a")
    assert results.batch([CELL], 0) and not results.batch([CELL], 1)
    results.write_batch(1, {CELL.key: np.zeros(3, bool)})
    assert not Results(tmp_path, "a").batch([CELL], 1)[CELL.key].any()


@pytest.mark.parametrize(("smoothed", "name"), [(False, "none"), (True, "paper"), (None, None)])
def test_files_of_an_earlier_version_are_read_as_todays(smoothed, name, tmp_path):
    """It wrote a bool `smoothed` where `preprocess` has a name, and gave batches to tasks."""
    cell = CELL._replace(preprocess=name)
    row = accuracy(cell, np.array([True, False]), extra={"radius": 6})
    line = row.to_json("a")
    line = {"smoothed" if key == "preprocess" else key: value for key, value in line.items()}
    (tmp_path / RESULTS).write_text(json.dumps(line | {"smoothed": smoothed}) + "\n")
    key = json.dumps(["corruptions", "gaussian_noise", 3, None, None, smoothed, 0.6])
    batch = {"task": "0123", "batch": 0, "signs": {key: "2:80", "x": "2:00"}}
    (tmp_path / BATCHES).write_text(json.dumps(batch) + "\n")
    before = (tmp_path / RESULTS).read_bytes()
    results = Results(tmp_path, "a")
    assert results.read("corruptions") == [row]
    assert results.answers("corruptions")[cell.key].tolist() == [True, False]
    assert results.batch([cell], 0).keys() == {cell.key, "x"}
    results.write(row)  # it is there
    assert (tmp_path / RESULTS).read_bytes() == before


@pytest.mark.parametrize(
    "text", ["not json\n", "[1, 2]\n", '{"suite": "clean"}\n', '{"smoothed": 1}\n']
)
def test_a_file_that_is_not_ours_is_named_and_kept(text, tmp_path):
    path = tmp_path / RESULTS
    path.write_text(text)
    with pytest.raises(ValueError, match=r"results\.jsonl, line 1: expected a row"):
        Results(tmp_path, "a")
    assert path.read_text() == text
