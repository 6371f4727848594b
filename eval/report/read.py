"""Reads the folders of evaluations: what was evaluated, the rows, and the sample images."""

import dataclasses
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.results import current_line

_NUMBERS = (
    *("severity", "epsilon", "sparsity", "n", "low", "high", "seconds", "radius", "corruptions"),
)


class ReportError(ValueError):
    """A file of an evaluation cannot be read; the message names it and says what is wrong."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of `results.jsonl`; None where a field does not apply."""

    suite: str
    name: str
    metric: str
    value: float
    severity: float | None = None
    epsilon: float | None = None
    attacker: str | None = None
    preprocess: str | None = None
    sparsity: float | None = None
    radius: float | None = None
    corruptions: float | None = None
    n: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    flags: tuple[str, ...] = ()

    @property
    def setting(self) -> tuple[Any, ...]:
        """What was measured, without the outcome: equal for the same row of two runs."""
        return (
            self.suite,
            self.metric,
            self.name,
            self.severity,
            self.epsilon and round(self.epsilon * 255, 4),
            self.attacker,
            self.preprocess,
            self.sparsity and round(self.sparsity, 4),
            self.radius,
        )


@dataclasses.dataclass(frozen=True)
class Samples:
    """Images with the entry levels of their edges, and pictures of what the network looked at.

    Attributes:
      images: uint8 ``[S, H, W, C]``, C is 1 or 3.
      down: uint8 ``[S, H-1, W]``, entry levels as in `isvs.ScaleSpace`.
      right: uint8 ``[S, H, W-1]``.
      labels: int ``[S]``.
      panels: uint8 ``[S, R, K, H, W, 3]`` or None.
      panel_rows: R names.
      panel_columns: K names.
    """

    images: np.ndarray
    down: np.ndarray
    right: np.ndarray
    labels: np.ndarray
    panels: np.ndarray | None = None
    panel_rows: tuple[str, ...] = ()
    panel_columns: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Run:
    """One evaluated network.

    Attributes:
      label: the run's name, with its folder where two runs share a name.
      evaluation: what `evaluation.json` holds.
      rows: one per setting, in the order of the file.
      samples: None without `samples.npz`.
      cut_off: whether the last line of the results was incomplete and is left out.
    """

    label: str
    evaluation: Mapping[str, Any]
    rows: tuple[Row, ...]
    samples: Samples | None
    cut_off: bool


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Reads one or several folders.

    Raises:
      ReportError: a file is missing or damaged, a folder has no rows, or a folder is given twice.
    """
    if not folders:
        raise ReportError("a report needs at least one folder with an evaluation, got none")
    runs = [_read_run(Path(folder)) for folder in folders]
    names = [run.label for run in runs]
    for place, (run, folder) in enumerate(zip(runs, folders, strict=True)):
        if names.count(run.label) > 1:
            runs[place] = dataclasses.replace(run, label=f"{run.label} ({Path(folder).name})")
    labels = [run.label for run in runs]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ReportError(f"two of the folders hold the run {twice!r}; rename one of them")
    return runs


def _read_run(folder: Path) -> Run:
    evaluation = _read_evaluation(folder / "evaluation.json")
    results = folder / "results.jsonl"
    rows, cut_off = _read_rows(results, evaluation["run"])
    if not rows:
        raise ReportError(f"{results}: no rows for the run {evaluation['run']!r}")
    samples = folder / "samples.npz"
    return Run(
        label=evaluation["run"],
        evaluation=evaluation,
        rows=rows,
        samples=_read_samples(samples) if samples.exists() else None,
        cut_off=cut_off,
    )


def _read_evaluation(path: Path) -> dict[str, Any]:
    try:
        content = _parse(_read_bytes(path))
    except ValueError as error:
        raise ReportError(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("run"), str):
        raise ReportError(f'{path}: expected an object with a text "run"')
    for key in ("sparsity", "stiffness", "speckle_area", "images"):
        if content.get(key) is not None and not _is_number(content[key]):
            raise ReportError(f'{path}: expected a number or null "{key}", got {content[key]!r}')
    if not isinstance(content.get("class_names") or [], list):
        raise ReportError(f'{path}: expected a list "class_names", got {content["class_names"]!r}')
    return content


def _read_rows(path: Path, run: str) -> tuple[tuple[Row, ...], bool]:
    """The rows, and whether the last line was cut off.

    A setting that was measured twice counts as it was measured last: an evaluation that goes on appends.
    """
    lines = _read_bytes(path).split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    rows: dict[tuple[Any, ...], Row] = {}
    for number, line in enumerate(lines, 1):
        try:
            fields = _parse(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            if number == len(lines):
                return tuple(rows.values()), True
            start = line[:60].decode(errors="replace")
            raise ReportError(f"{path}, line {number}: not JSON ({error}): {start!r}") from error
        except ValueError as error:
            raise ReportError(f"{path}, line {number}: {error}") from error
        try:
            row = _make_row(fields, run)
        except ValueError as error:
            raise ReportError(f"{path}, line {number}: {error}") from error
        rows[row.setting] = row
    return tuple(rows.values()), False


def _make_row(fields: Any, run: str) -> Row:
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object, got {type(fields).__name__}")
    if fields.get("run", run) != run:
        raise ValueError(f"expected a row of the run {run!r}, got {fields['run']!r}")
    for key in ("suite", "name", "metric"):
        if not isinstance(fields.get(key), str):
            raise ValueError(f'expected a text "{key}", got {fields.get(key)!r}')
    if not _is_number(fields.get("value")):
        raise ValueError(f'expected a finite number "value", got {fields.get("value")!r}')
    for key in _NUMBERS:
        if fields.get(key) is not None and not _is_number(fields[key]):
            raise ValueError(f'expected a finite number or null "{key}", got {fields[key]!r}')
    fields = current_line(fields)
    for key in ("attacker", "preprocess"):
        if fields.get(key) is not None and not isinstance(fields[key], str):
            raise ValueError(f'expected a text or null "{key}", got {fields[key]!r}')
    flags = fields.get("flags") or []
    if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
        raise ValueError(f'expected a list of texts "flags", got {flags!r}')
    known = {field.name for field in dataclasses.fields(Row)}
    given = {key: value for key, value in fields.items() if key in known}
    return Row(**{**given, "flags": tuple(flags)})


def _read_samples(path: Path) -> Samples:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ReportError(f"{path}: cannot be read ({error})") from error
    missing = {"images", "down", "right", "labels"} - arrays.keys()
    if missing:
        raise ReportError(f"{path}: has no {', '.join(sorted(missing))}")
    _check_samples(path, arrays)
    return Samples(
        images=arrays["images"],
        down=arrays["down"],
        right=arrays["right"],
        labels=arrays["labels"],
        panels=arrays.get("panels"),
        panel_rows=tuple(str(name) for name in arrays.get("panel_rows", ())),
        panel_columns=tuple(str(name) for name in arrays.get("panel_columns", ())),
    )


def _check_samples(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    images = arrays["images"]
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise ReportError(f"{path}: images must be [S, H, W, 1 or 3], got {images.shape}")
    count, height, width, _ = images.shape
    shapes: dict[str, tuple[int, ...]] = {
        "images": images.shape,
        "down": (count, height - 1, width),
        "right": (count, height, width - 1),
    }
    if "panels" in arrays:
        names = [len(arrays.get(axis, ())) for axis in ("panel_rows", "panel_columns")]
        shapes["panels"] = (count, *names, height, width, 3)
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.uint8:
            came = f"{arrays[name].dtype} {arrays[name].shape}"
            raise ReportError(f"{path}: {name} must be uint8 {shape}, got {came}")
    if arrays["labels"].shape != (count,):
        raise ReportError(f"{path}: labels must be {(count,)}, got {arrays['labels'].shape}")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ReportError(f"{path}: not found") from error
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error})") from error


def _parse(text: bytes) -> Any:
    return json.loads(text.decode(), parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of JSON")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
