"""`python -m eval.main` as a user meets it, also when it is killed."""

import json
import shutil

import pytest

from eval import main as program


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


def test_every_suite_gives_rows_raw_and_smoothed(whole):
    rows = rows_of(whole)
    assert {row["suite"] for row in rows} == {
        *("clean", "corruptions", "adversarial", "lowres", "frequency"),
    }
    for suite in ("clean", "corruptions", "lowres", "frequency"):
        assert {row["smoothed"] for row in rows if row["suite"] == suite} == {True, False}
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
    ("options", "expected"),
    [
        ([], "give either --run DIR, or --weights FILE"),
        (["--run", "nowhere"], "nowhere: not the folder of a run"),
        (
            ["--weights", "no.safetensors", "--model", "resnet8", "--dataset", "shapes"],
            "no such file",
        ),
        (["--weights", "x.safetensors"], "--weights needs --model and --dataset"),
        (["--run", "nowhere", "--suite", "magic"], "unknown 'magic'; choose among clean,"),
        (["--run", "nowhere", "--model", "resnet8"], "--model comes from the run"),
        (["--run", "nowhere", "--severities", "6"], "--severities: expected 1 to 5"),
        (["--run", "nowhere", "--levels", "1.5"], "--levels: expected a level in"),
        (["figure", "nothing"], "unknown 'nothing'; choose one of"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_errors_are_one_message(options, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        assert program.main(options) == 1
    except SystemExit as leaving:  # options that contradict each other
        assert leaving.code == 2
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
