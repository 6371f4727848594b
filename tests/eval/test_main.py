"""`python -m eval.main` as a user meets it, also when it is killed."""

import dataclasses
import functools
import json
import shutil

import pytest

import isvs
from eval import main as program
from eval import runner
from eval.options import Options
from eval.subject import open_subject


def rows_of(folder):
    """The rows, without what depends on the clock."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """An evaluation from beginning to end."""
    folder = tmp_path_factory.mktemp("evaluations") / "whole"
    code, out, err = command.run(out=folder)
    assert code == 0, err
    assert "report.html" in out and "report.md" in out
    return folder


FOUR = ("none", "paper", "soft", "auto")
SUITES = ("clean", "corruptions", "lowres", "frequency")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def make_earlier(folder):
    """Rewrites the files as an earlier version wrote them: `smoothed` for `preprocess`, and tasks."""
    smoothed = {"none": False, "paper": True, None: None}

    def row(line):
        pairs = [
            ("smoothed", smoothed[v]) if k == "preprocess" else (k, v) for k, v in line.items()
        ]
        return dict(pairs)

    def key(name):
        values = json.loads(name) if name.startswith("[") else None
        return name if values is None else json.dumps([*values[:5], smoothed[values[5]], values[6]])

    def batch(line):
        signs = {key(name): text for name, text in line["signs"].items()}
        return {"task": "0123456789abcdef", "batch": line["batch"], "signs": signs}

    for name, convert in (("results.jsonl", row), ("batches.jsonl", batch)):
        path = folder / name
        lines = [json.dumps(convert(line)) + "\n" for line in lines_of(path)]
        assert '"preprocess"' not in "".join(lines)
        path.write_text("".join(lines))


@pytest.fixture(scope="module")
def grown(whole, command, tmp_path_factory):
    """An evaluation by an earlier version, continued with two more columns; and its first lines."""
    folder = tmp_path_factory.mktemp("evaluations") / "grown"
    shutil.copytree(whole, folder)
    make_earlier(folder)
    before = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    few = {"attacks": ("pgd",), "attackers": ("unaware", "exact"), "epsilons": 8, "samples": 0}
    code, _, err = command.run(out=folder, preprocess=FOUR, **few, sanity_epsilon=0)
    assert code == 0, err
    return folder, before


def test_more_columns_later_keep_what_is_there(grown):
    folder, before = grown
    for name, content in before.items():
        assert (folder / name).read_bytes().startswith(content)
    rows = lines_of(folder / "results.jsonl")[before["results.jsonl"].count(b"\n") :]
    assert {row["preprocess"] for row in rows} == {"soft", "auto"}
    batches = lines_of(folder / "batches.jsonl")[before["batches.jsonl"].count(b"\n") :]
    keys = [name for line in batches for name in line["signs"] if name.startswith("[")]
    assert {json.loads(key)[5] for key in keys} == {"soft", "auto"}


def test_every_suite_has_all_columns(grown):
    folder, before = grown
    rows = lines_of(folder / "results.jsonl")
    new = rows[before["results.jsonl"].count(b"\n") :]
    for suite in SUITES:
        old = {(r["name"], r["severity"]) for r in rows if r["suite"] == suite}
        for column in ("soft", "auto"):
            own = [r for r in new if r["suite"] == suite and r["preprocess"] == column]
            assert {(r["name"], r["severity"]) for r in own} == old
            assert {r["sparsity"] for r in own} == {0.4 if column == "soft" else None}
    attacked = [r for r in new if r["suite"] == "adversarial"]
    expected = {("pgd", "unaware"), ("pgd", "exact")}
    expected |= {("worst", "unaware"), ("worst", "exact"), ("worst", "any")}
    for column in ("soft", "auto"):
        own = [r for r in attacked if r["preprocess"] == column]
        assert {(r["name"], r["attacker"]) for r in own} == expected
        assert not any("nan gradients" in r["flags"] for r in own)


def test_the_report_has_all_columns(grown):
    folder, _ = grown
    text = (folder / "report.md").read_text()
    assert "| corruption | as they are | smoothed (paper) | soft | automatic |" in text


def test_every_suite_gives_rows_as_they_are_and_smoothed(whole):
    rows = rows_of(whole)
    assert {row["suite"] for row in rows} == {
        *("clean", "corruptions", "adversarial", "lowres", "frequency"),
    }
    for suite in SUITES:
        columns = {row["preprocess"] for row in rows if row["suite"] == suite}
        assert columns == {"none", "paper"}
    for row in rows:
        assert row["metric"] == "accuracy" and 0 <= row["low"] <= row["value"] <= row["high"] <= 100
    levels = [row["sparsity"] for row in rows if row["suite"] == "clean"]
    assert levels == [None, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    raw, smoothed_to_the_end = rows[0], rows[8]
    assert raw["value"] == smoothed_to_the_end["value"]  # level 1 is the image
    attackers = {row["attacker"] for row in rows if row["suite"] == "adversarial"}
    assert attackers == {"none", "unaware", "straight-through", "exact", "black-box", "any"}
    names = {row["name"] for row in rows if row["suite"] == "corruptions"}
    assert names == {"gaussian_noise", "contrast", "mean"}


def test_nothing_is_repeated(whole, command):
    before = {path.name: path.read_bytes() for path in whole.glob("*.jsonl")}
    # Nor do fewer corruptions or attacks make a mean or a worst case of fewer.
    code, _, err = command.run(out=whole, corruptions=("contrast",), attacks=("pgd",))
    assert code == 0, err
    assert {path.name: path.read_bytes() for path in whole.glob("*.jsonl")} == before


def test_a_killed_evaluation_comes_to_the_same(whole, command, tmp_path):
    folder = tmp_path / "killed"
    for lines in (3, 40):
        batches = folder / "batches.jsonl"
        command.kill(
            lambda: batches.exists() and batches.read_bytes().count(b"\n") >= lines,  # noqa: B023
            out=folder,
        )
    code, _, err = command.run(out=folder)
    assert code == 0, err
    assert rows_of(folder) == rows_of(whole)


def test_devices_do_not_change_the_numbers(whole, command, tmp_path):
    folder = tmp_path / "eight"
    suites = ("corruptions", "lowres")
    code, _, err = command.run(devices=8, out=folder, suite=suites)
    assert code == 0, err
    assert rows_of(folder) == [row for row in rows_of(whole) if row["suite"] in suites]


def test_other_options_are_refused_and_named(whole, run, capsys):
    before = (whole / "results.jsonl").read_bytes()
    assert program.main(["--run", str(run), "--out", str(whole), "--seed", "7"]) == 1
    text = capsys.readouterr().err
    assert "holds another evaluation" in text and "seed: was 0, now 7" in text
    assert (whole / "results.jsonl").read_bytes() == before


def test_other_constants_of_a_column_are_refused_and_named(run, tmp_path, monkeypatch):
    options = Options(run=run, preprocess=("none", "auto")).filled()
    subject = open_subject(options)
    runner.claim(tmp_path, subject, dataclasses.replace(options, preprocess=("none",)), [])
    runner.claim(tmp_path, subject, options, [])  # a column more
    monkeypatch.setattr(isvs, "AutoLevel", functools.partial(isvs.AutoLevel, contrast=7.0))
    runner.claim(tmp_path, subject, dataclasses.replace(options, preprocess=("none",)), [])
    with pytest.raises(ValueError, match=r"auto: was 'AutoLevel\(.*, now 'AutoLevel\(contrast=7"):
        runner.claim(tmp_path, subject, options, [])


def test_an_unreadable_results_file_is_left_alone(whole, command, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    path = folder / "results.jsonl"
    path.write_text("{broken\n" + path.read_text())
    before = path.read_bytes()
    code, _, err = command.run(out=folder)
    assert code == 1 and "results.jsonl, line 1" in err and "Traceback" not in err
    assert path.read_bytes() == before


def test_bare_weights_give_what_the_run_gives(whole, run, command, tmp_path):
    folder = tmp_path / "bare"
    options = ["--weights", str(run / "weights.safetensors"), "--model", "_tiny"]
    options += ["--dataset", "shapes", "--method", "fix", "--limit", "32", "--batch-size", "16"]
    options += ["--suite", "lowres", "--samples", "2", "--out", str(folder)]
    assert program.main(options) == 0
    expected = [row for row in rows_of(whole) if row["suite"] == "lowres"]
    assert [{**row, "run": "tiny"} for row in rows_of(folder)] == expected


def test_one_page_over_two_evaluations(whole, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(whole, other)
    out = tmp_path / "page"
    assert program.main(["report", str(whole), str(other), "--out", str(out)]) == 0
    assert (out / "report.html").is_file() and (out / "report.md").is_file()


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        ([], 2, "give either --run DIR, or --weights FILE"),
        (["--run", "nowhere"], 1, "nowhere: not the folder of a run"),
        (
            ["--weights", "no.safetensors", "--model", "resnet8", "--dataset", "shapes"],
            1,
            "no such file",
        ),
        (["--weights", "x.safetensors"], 2, "--weights needs --model and --dataset"),
        (["--run", "nowhere", "--suite", "magic"], 2, "unknown 'magic'; choose among clean,"),
        (
            ["--run", "nowhere", "--preprocess", "hard"],
            2,
            "unknown 'hard'; choose among none, paper,",
        ),
        (["--run", "nowhere", "--model", "resnet8"], 2, "--model comes from the run"),
        (["--run", "nowhere", "--severities", "6"], 2, "--severities: expected 1 to 5"),
        (["--run", "nowhere", "--levels", "1.5"], 2, "--levels: expected a level in"),
        (["figure", "nothing"], 2, "unknown 'nothing'; choose one of"),
        (["report", "nowhere"], 1, "nowhere"),
    ],
)
def test_errors_are_one_message(options, status, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        found = program.main(options)
    except SystemExit as leaving:  # from the parser
        found = leaving.code
    assert found == status
    text = " ".join(capsys.readouterr().err.split())
    assert expected in text and "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_weights_that_do_not_fit_are_named(run, capsys, tmp_path):
    weights = str(run / "weights.safetensors")
    options = ["--weights", weights, "--model", "resnet8", "--dataset", "shapes", "--limit", "8"]
    assert program.main([*options, "--out", str(tmp_path / "out")]) == 1
    assert "does not fit 'resnet8'" in capsys.readouterr().err
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes((run / "weights.safetensors").read_bytes()[:100])
    options = ["--weights", str(broken), "--model", "_tiny", "--dataset", "shapes", "--limit", "8"]
    assert program.main([*options, "--out", str(tmp_path / "out")]) == 1
    assert "is not a whole .safetensors file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_not_finished_is_named(run, capsys, tmp_path):
    folder = tmp_path / "half"
    folder.mkdir()
    shutil.copy(run / "config.json", folder)
    assert program.main(["--run", str(folder)]) == 1
    assert "the training is not finished" in capsys.readouterr().err
