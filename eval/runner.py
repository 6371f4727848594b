"""Runs suites on a subject, batch by batch, and continues where an earlier run stopped."""

import contextlib
import json
import platform
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax
import jax
import numpy as np

import isvs
from eval import preprocessing, suites
from eval.bench_table import write_json
from eval.options import Options
from eval.results import Results, Row, accuracy
from eval.subject import Subject
from eval.suites.base import Cells, Found, Judge, Task
from train import run_folder
from train.progress import Progress

EVALUATION = "evaluation.json"


def choose_folder(options: Options) -> Path:
    """`--out`, or `eval` inside the run, or a folder under runs/ named after weights and options."""
    if options.out is not None:
        return options.out
    if options.run is not None:
        return options.run / "eval"
    assert options.weights is not None
    return Path("runs") / "eval" / f"{options.weights.stem}-{options.digest()}"


def evaluate(subject: Subject, options: Options, folder: Path, arguments: list[str]) -> None:
    """Fills results.jsonl with the rows of the suites that are asked for.

    Args:
        subject: the network.
        options: with the budget filled in.
        folder: of the evaluation; one that holds another evaluation is refused.
        arguments: of the command line, to be repeated by a reader.

    Raises:
        ValueError: if the folder holds the results of other weights, data or options.
    """
    with run_folder.locked(folder):
        name = claim(folder, subject, options, arguments)
        results = Results(folder, name)
        judge = Judge(subject, subject.draws(options))
        # All plans come first: what is wrong with the last suite's options is said at once.
        plans = {
            suite: list(suites.SUITES[suite].tasks(subject, options, judge))
            for suite in options.suite
        }
        for suite, tasks in plans.items():
            _run_suite(suite, tasks, subject, options, results)


def claim(folder: Path, subject: Subject, options: Options, arguments: list[str]) -> str:
    """Writes what is evaluated and how, or compares with what is there.

    Returns:
        The name that rows bear: the first one, where the run has been renamed since.
    """
    path = folder / EVALUATION
    content = describe(subject, options, arguments)
    if path.is_file():
        old = json.loads(path.read_text(encoding="utf-8"))
        before = old.get("columns", {})
        both = before.keys() & content["columns"].keys()  # the others may be measured later
        changed = [
            f"{name}: was {was!r}, now {now!r}"
            for name, was, now in (
                *_differences(old["identity"], content["identity"]),
                *_differences(*({n: of[n] for n in both} for of in (before, content["columns"]))),
            )
        ]
        if changed:
            raise ValueError(
                f"{folder} holds another evaluation:\n  " + "\n  ".join(changed) + "\n"
                "Repeat its options to continue it, or give another --out."
            )
        # More suites may be asked for later: the page shows the command that came first.
        for key in ("command", "run"):
            content[key] = old.get(key, content[key])
        content["columns"] = before | content["columns"]
    write_json(path, content)
    return str(content["run"])


def describe(subject: Subject, options: Options, arguments: list[str]) -> dict[str, Any]:
    """What a reader of the results needs to know of their origin."""
    dataset = subject.dataset
    return {
        "run": subject.name,
        "dataset": dataset.name,
        "model": subject.config.model,
        "method": subject.config.method,
        "sparsity": subject.method.sparsity,
        "stiffness": subject.config.stiffness,
        "speckle_area": subject.config.speckle_area,
        "images": len(dataset.test),
        "image_shape": list(dataset.image_shape),
        "class_names": list(dataset.class_names),
        "weights": subject.weights_file.name,
        "command": shlex.join(["python", "-m", "eval.main", *arguments]),
        "versions": {
            "python": platform.python_version(),
            **{package.__name__: package.__version__ for package in (isvs, jax, flax, np)},
        },
        "platform": f"{jax.device_count()} {jax.default_backend()} device(s)",
        "attack_options": {
            name: getattr(options, name)
            for name in ("budget", "pgd_steps", "apgd_steps", "queries", "restarts", "epsilon_unit")
        },
        "columns": {name: preprocessing.definition(name) for name in options.preprocess},
        "identity": {
            "weights": subject.weights_digest,
            "data": dataset.test.fingerprint,
            **options.identity(),
        },
    }


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = sorted(old.keys() | new.keys())
    return [(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)]


def _run_suite(
    name: str, tasks: list[Task], subject: Subject, options: Options, results: Results
) -> None:
    # What earlier commands measured counts too: fewer attacks now do not make a worst case milder.
    right = results.answers(name)
    rows: list[Row] = []
    total = sum(len(task.split) for task in tasks)
    with Progress(name, total, unit="images") as progress:
        for task in tasks:
            signs, seconds = _run_task(task, subject, options, results, progress)
            for cell in task.cells:
                flags = task.flags(cell, signs, right)
                row = accuracy(
                    cell, signs[cell.key], flags=flags, seconds=seconds, extra=task.extra
                )
                results.write(row)
                rows.append(row)
            right |= {cell.key: signs[cell.key] for cell in task.cells}
    if not tasks and results.read(name):
        return  # a suite without batches is measured once
    measured = {row.cell: row for row in (*results.read(name), *rows) if row.cell.key in right}
    for row in suites.SUITES[name].summarise(options, Found(tuple(measured.values()), right)):
        results.write(row)


def _run_task(
    task: Task, subject: Subject, options: Options, results: Results, progress: Progress
) -> tuple[dict[str, np.ndarray], float | None]:
    """The signs of all images of a task, and the seconds it took unless part was done before."""
    count = -(-len(task.split) // options.batch_size)
    parts = [results.batch(task.cells, number) for number in range(count)]
    began, whole = time.monotonic(), not any(parts)
    unknown = [tuple(cell for cell in task.cells if cell.key not in part) for part in parts]
    if any(unknown):
        batches = subject.batches(
            task.split, options.batch_size, options.num_workers, task.transform
        )
        with contextlib.closing(batches):  # type: ignore[type-var]
            for number, batch in enumerate(batches):
                if unknown[number]:
                    signs = _signs(task, batch, unknown[number])
                    results.write_batch(number, signs)
                    parts[number] |= signs
                progress.advance(len(next(iter(parts[number].values()))), _note(task))
    else:
        progress.advance(len(task.split))
    seconds = time.monotonic() - began if whole else None
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, seconds


def _signs(task: Task, batch: dict[str, jax.Array], cells: Cells) -> dict[str, np.ndarray]:
    mask = np.asarray(batch["mask"])
    return {name: np.asarray(values)[mask] for name, values in task.measure(batch, cells).items()}


def _note(task: Task) -> str:
    cell = task.cells[0]
    parts = (
        cell.name,
        cell.severity,
        cell.attacker and f"{cell.attacker} ({cell.preprocess})",
        cell.epsilon and f"{255 * cell.epsilon:g}/255",
    )
    return " ".join(str(part) for part in parts if part is not None)
