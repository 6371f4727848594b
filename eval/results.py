"""What an evaluation found: rows in results.jsonl, and the batches behind rows not finished yet.

Both files grow by whole lines. A row is written when all its batches are there; until then each
batch keeps, for every image, whether it was named rightly, so that nothing is computed twice.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS, BATCHES = "results.jsonl", "batches.jsonl"
# Of the standard normal distribution: 95 % lie within so many standard deviations.
_NORMAL_95 = 1.959964


class Cell(NamedTuple):
    """What one number is about; None where a key does not apply."""

    suite: str
    name: str
    severity: int | None = None
    epsilon: float | None = None
    attacker: str | None = None
    smoothed: bool | None = None
    sparsity: float | None = None

    @property
    def key(self) -> str:
        """The cell as text, which `parse` reads."""
        return json.dumps(list(self))

    @classmethod
    def parse(cls, key: str) -> "Cell":
        """The cell of a key."""
        return cls(*json.loads(key))


class Row(NamedTuple):
    """A number with its cell; see `to_json` for the keys of a line."""

    cell: Cell
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    metric: str = "accuracy"
    flags: tuple[str, ...] = ()
    seconds: float | None = None
    extra: Mapping[str, Any] = {}

    def to_json(self, run: str) -> dict[str, Any]:
        """The line of results.jsonl."""
        return {
            "run": run,
            **self.cell._asdict(),
            "metric": self.metric,
            "value": self.value,
            "n": self.n,
            "low": self.low,
            "high": self.high,
            "flags": list(self.flags),
            "seconds": self.seconds,
            **self.extra,
        }


def accuracy(cell: Cell, right: np.ndarray, **more: Any) -> Row:
    """The share of right answers in per cent, with Wilson's 95 % interval.

    Args:
        cell: what was measured.
        right: bool [n].
        **more: other fields of the row.
    """
    n, hits = len(right), int(right.sum())
    low, high = wilson(hits, n)
    return Row(cell, 100 * hits / n, n, 100 * low, 100 * high, **more)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's score interval of a proportion at 95 %."""
    z2 = _NORMAL_95**2
    share = hits / n
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _NORMAL_95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At 0 and at n one end is exact, but for rounding.
    return (0.0 if hits == 0 else centre - half), (1.0 if hits == n else centre + half)


def mean(cell: Cell, rows: list[Row], **more: Any) -> Row:
    """The mean of several rows on the same images.

    Its interval is the mean of theirs: right if they err together, and too wide otherwise.
    """
    value, low, high = (
        math.fsum(part) / len(rows)
        for part in zip(*((row.value, row.low or 0, row.high or 0) for row in rows), strict=True)
    )
    return Row(cell, value, min(row.n for row in rows), low, high, metric=rows[0].metric, **more)


class Results:
    """The two files of a folder.

    Args:
        folder: of the evaluation.
        run: its name, written into every row.

    Raises:
        ValueError: if one of the files holds a line that is not ours, before its last.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run
        self._rows = {_row_key(line): line for line in _recover(folder / RESULTS, _row_key)}
        self._batches: dict[str, dict[int, dict[str, str]]] = {}
        for line in _recover(folder / BATCHES, lambda line: (line["task"], line["batch"])):
            self._batches.setdefault(line["task"], {})[line["batch"]] = line["signs"]

    def has(self, cell: Cell, metric: str = "accuracy") -> bool:
        """Whether the row is written."""
        return (cell.key, metric) in self._rows

    def write(self, row: Row) -> None:
        """Appends a row, unless it is there; a worst case over more attacks, say, replaces the old.

        Of several lines with one cell and metric, the last counts.
        """
        line = row.to_json(self._run)
        old = self._rows.get((row.cell.key, row.metric))
        if old is None or {**old, "seconds": None} != {**line, "seconds": None}:
            _append(self._folder / RESULTS, line)
            self._rows[row.cell.key, row.metric] = line

    def read(self, suite: str) -> list[Row]:
        """All rows of a suite."""
        known = {*Cell._fields, *Row._fields, "run"}
        return [
            Row(
                cell=Cell(**{name: line[name] for name in Cell._fields}),
                **{name: line[name] for name in ("value", "n", "low", "high", "metric", "seconds")},
                flags=tuple(line["flags"]),
                extra={name: value for name, value in line.items() if name not in known},
            )
            for line in self._rows.values()
            if line["suite"] == suite
        ]

    def answers(self, suite: str) -> dict[str, np.ndarray]:
        """Of each measured cell's key, bool [n]: also of cells that an earlier command asked for."""
        found = {}
        for batches in self._batches.values():
            parts = [batches[number] for number in sorted(batches)]
            for name in parts[0]:
                row = self._rows.get((name, "accuracy"))
                if row is None or row["suite"] != suite:
                    continue
                values = np.concatenate([_unpack(part[name]) for part in parts])
                # A cell may also stand in a task that is not finished.
                if len(values) == row["n"]:
                    found[name] = values
        return found

    def batch(self, task: str, number: int) -> dict[str, np.ndarray] | None:
        """The signs of a batch that was done before."""
        signs = self._batches.get(task, {}).get(number)
        return None if signs is None else {name: _unpack(text) for name, text in signs.items()}

    def write_batch(self, task: str, number: int, signs: Mapping[str, np.ndarray]) -> None:
        """Keeps the signs of a batch: bool [n] under each name."""
        packed = {name: _pack(values) for name, values in signs.items()}
        _append(self._folder / BATCHES, {"task": task, "batch": number, "signs": packed})
        self._batches.setdefault(task, {})[number] = packed


def _row_key(line: Mapping[str, Any]) -> tuple[str, str]:
    return Cell(*(line[name] for name in Cell._fields)).key, line["metric"]


def _recover(path: Path, key: Any) -> list[dict[str, Any]]:
    """The lines of a file; one that a crash cut off at the end is taken out of it."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    lines = []
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = json.loads(text)
            key(line)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path}, line {number}: expected a row of an evaluation, got {text[:60]!r}; "
                "nothing was changed. Mend or move the file, or give another --out."
            ) from error
        lines.append(line)
    if whole != content:
        os.truncate(path, len(whole))
    return lines


def _append(path: Path, line: Mapping[str, Any]) -> None:
    data = (json.dumps(line, allow_nan=False) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, data)  # one call, one whole line
    finally:
        os.close(file)


def _pack(values: np.ndarray) -> str:
    return f"{len(values)}:{np.packbits(values).tobytes().hex()}"


def _unpack(text: str) -> np.ndarray:
    count, _, bits = text.partition(":")
    return np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8))[: int(count)].astype(bool)
