"""The manners of all programs: help, errors, exit status, pipes."""

import os
import re
import signal
import subprocess
import sys
import types

import pytest
from runs import ROOT, TINY, Command

import isvs.__main__
from eval import bench
from eval import main as evaluation
from eval.cleaning import main as cleaning
from eval.figures import FIGURES
from isvs import _command
from train import main as training

PROGRAMS = {
    "isvs": isvs.__main__.main,
    "train.main": training.main,
    "eval.main": evaluation.main,
    "eval.bench": bench.main,
    "eval.cleaning": cleaning.main,
}
COMMANDS = (
    *PROGRAMS,
    *("isvs smooth", "isvs path", "eval.main report", "eval.main figure"),
    *(f"eval.main figure {name}" for name in FIGURES),
    *(f"eval.cleaning {name}" for name in ("fit-auto", "fit-peers", "table", "carry-over")),
)
EXAMPLE = re.compile(r"^ +python -m ([\w.]+)((?: [a-z][a-z-]*(?= |$)){0,2})(.*)$", re.MULTILINE)


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Runs a program in this process, in an empty folder: its status, and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(line, *more):
        program, *words = line.split()
        try:
            status = PROGRAMS[program]([*words, *map(str, more)])
        except SystemExit as leaving:
            status = leaving.code
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_plain_and_has_examples(call, command):
    status, out, err = call(command, "--help")
    assert status == 0 and not err
    assert "examples:" in out and "--debug" in out and "\x1b" not in out
    assert f"python -m {command}" in out.partition("examples:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_options_in_examples_exist(call, command):
    examples = EXAMPLE.findall(call(command, "--help")[1].partition("examples:")[2])
    assert examples
    for program, words, options in examples:
        shown = call(f"{program}{words}" if f"{program}{words}" in COMMANDS else program, "--help")
        for option in re.findall(r"(?<= )--?[a-z][a-z-]*", options):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown[1]), (program, words, option)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("isvs smoth a.png", "'smooth', 'path'"),
        ("isvs smooth a.png", "-o/--out"),
        ("isvs smooth a.png --sparsty 1 -o b.png", "--sparsty"),
        ("train.main --learning-rat 1", "--learning-rate"),
        ("train.main --optimizer magic", "'adamw'"),
        ("train.main --epochs 0", "error: --epochs: expected 1 or more, got 0"),
        ("train.main --epochs many", "--epochs"),
        ("train.main --method fix --lbi-steps 3", "--lbi-steps needs --iterate lbi"),
        ("eval.main", "give either --run DIR, or --weights FILE with --model and --dataset"),
        ("eval.main --run a --suite magic", "unknown 'magic'; choose among clean,"),
        ("eval.main --run a --sevrities 1", "--severities"),
        ("eval.main report", "expected folders"),
        ("eval.main figure nothing", "choose one of path,"),
        ("eval.main figure spectra", "--run PATH"),
        ("eval.bench smothing", "'smoothing'"),
        ("eval.cleaning", "fit-peers, fit-auto, table, carry-over"),
        ("eval.cleaning tabl", "fit-peers, fit-auto, table, carry-over"),
        ("eval.cleaning table --limit 3", "--weights PATH; --model"),
    ],
)
def test_wrong_options_begin_nothing(call, line, expected, tmp_path):
    status, out, err = call(line)
    assert status == 2 and not out
    assert expected in err and "error: " in err and "Traceback" not in err
    assert not re.search("[\x1b│╭]", err) and len(err.splitlines()) <= 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("isvs smooth a.png -o b.png", "a.png: "),
        ("isvs path a.png -o b.png", "a.png: "),
        ("train.main --config a.json", "a.json: No such file or directory"),
        ("eval.main --run nowhere", "nowhere: not the folder of a run"),
        ("eval.main report nowhere", "nowhere"),
        ("eval.main figure path a.png", "a.png: "),
        ("eval.cleaning table --weights a --model resnet8 --dataset shapes --out b", "a"),
        ("eval.bench smoothing", "no compiler"),
    ],
)
def test_errors_are_a_line_or_two(call, line, expected, monkeypatch):
    def fail(quick):
        raise ValueError("no compiler")

    monkeypatch.setitem(sys.modules, "eval.bench_smoothing", types.SimpleNamespace(run=fail))
    status, out, err = call(line)
    assert status == 1 and not out
    assert err.startswith("error: ") and expected in err
    assert len(err.splitlines()) <= 2 and "Traceback" not in err
    status, _, debugged = call(line, "--debug")
    assert status == 1 and "Traceback" in debugged and debugged.endswith(err)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("too large"), 1, "error: too large"),
        (FileNotFoundError(2, "No such file", "a.json"), 1, "error: a.json: No such file"),
        (OSError("odd"), 1, "error: odd"),
        (FloatingPointError("loss is nan"), 1, "error: loss is nan"),
        (_command.UsageError("--a or --b"), 2, "error: --a or --b"),
        (KeyboardInterrupt(), 130, "stopped; go on"),
        (MemoryError(), 1, "error: out of memory; smaller"),
        (RuntimeError("RESOURCE_EXHAUSTED: 3 GB\nmore"), 1, "error: out of memory; smaller"),
        (_command.NotInstalledError("x: pip install y"), 1, "error: x: pip install y"),
        (ModuleNotFoundError("no", name="tyro.conf"), 1, "error: x needs tyro.conf, which is not"),
        (ModuleNotFoundError("no", name="eval.x"), 70, "internal error: ModuleNotFoundError: no;"),
        (KeyError("a"), 70, "internal error: KeyError: 'a'; run again with --debug"),
        (RuntimeError(), 70, "internal error: RuntimeError: no message;"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
    ],
    ids=repr,
)
def test_what_each_exception_becomes(error, status, message, capsys):
    def body(words):
        assert words == ["a"]
        raise error

    settings = {"program": "x", "install": "pip install y", "interrupted": "stopped; go on"}
    assert _command.run(body, ["a"], **settings) == status
    err = capsys.readouterr().err
    assert err.startswith(message) and err.count("\n") == bool(message)
    assert _command.run(body, ["--debug", "a"], **settings) == status
    debugged = capsys.readouterr().err
    assert debugged.startswith("Traceback") and debugged.endswith(err)


def test_the_extra_is_named_where_it_is_missing():
    code = (
        "import sys; sys.modules['tyro'] = None\n"
        "from importlib import import_module\n"
        "for name in ('train.main', 'eval.main', 'eval.cleaning.main'):\n"
        "    assert import_module(name).main(['--help']) == 1"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stdout, done.stderr
    lines = done.stderr.splitlines()
    assert [line.partition("needs tyro")[0] for line in lines] == [
        f"error: python -m {program} " for program in ("train.main", "eval.main", "eval.cleaning")
    ]
    assert [line[line.index("pip ") :] for line in lines] == [
        f"pip install -e '.[{extra}]'" for extra in ("train", "eval", "eval")
    ]


@pytest.mark.parametrize("words", [("isvs", "--help"), ("train.main", "--help")], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(words):
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        # Unbuffered, argparse writes itself, and is silent about it.
        env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_no_color_is_respected(call, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" in call("train.main --help")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in call("train.main --help")[1]


@pytest.fixture
def interruptible():
    """Processes that are begun can be interrupted, also where these tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_leaves_a_run_that_continues(caches, interruptible, tmp_path):
    command = Command(caches, "train.main", {**TINY, "cache_dir": caches["codes"]})
    latest = tmp_path / "checkpoints" / "latest"
    code, out, err = command.interrupt(
        lambda: any(latest.glob("[0-9]*")),
        signal.SIGINT,
        out=tmp_path,
        epochs=200,
        method="vanilla",
    )
    assert code == 130 and not out
    lines = err.splitlines()
    assert lines[-1] == "interrupted; the same command continues"
    # Nothing but our own lines: no log of a library, no bar, no colours.
    ours = re.compile(r"encoding shapes|training: |epoch \d+/200: |interrupted")
    assert all(ours.match(line) for line in lines), err
    assert not re.search("[\x1b\r]", err)
