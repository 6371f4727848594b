"""What an evaluation found: rows in results.jsonl, and the batches behind rows not finished yet.

Both files grow by whole lines. A row is written when all its batches are there; until then each
batch keeps, for every image, whether it was named rightly, so that nothing is computed twice.

An earlier version told preprocessed images from bare ones by a bool `smoothed`, where `preprocess`
has a name now. Its files are read as if they had been written today.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

RESULTS, BATCHES = "results.jsonl", "batches.jsonl"
# Of the standard normal distribution: 95 % lie within so many standard deviations.
_NORMAL_95 = 1.959964
_SMOOTHED, _PREPROCESS_OF = "smoothed", {False: "none", True: "paper", None: None}
_Line = TypeVar("_Line")


class Cell(NamedTuple):
    """What one number is about; None where a key does not apply."""

    suite: str
    name: str
    severity: int | None = None
    epsilon: float | None = None
    attacker: str | None = None
    preprocess: str | None = None
    sparsity: float | None = None

    @property
    def key(self) -> str:
        """The cell as text, which `parse` reads."""
        return json.dumps(list(self))

    @classmethod
    def parse(cls, key: str) -> "Cell":
        """The cell of a key, also of one that an earlier version wrote."""
        cell = cls(*json.loads(key))
        if isinstance(cell.preprocess, bool):
            return cell._replace(preprocess=_PREPROCESS_OF[cell.preprocess])
        return cell


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
        self._rows = dict(_recover(folder / RESULTS, _read_row))
        # By the key of a cell and the number of a batch: the signs of the line that holds them.
        self._batches: dict[str, dict[int, dict[str, str]]] = {}
        for number, signs in _recover(folder / BATCHES, _read_batch):
            self._keep(number, signs)

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
        for key, batches in self._batches.items():
            row = self._rows.get((key, "accuracy"))
            if row is None or row["suite"] != suite:
                continue
            values = np.concatenate([_unpack(batches[number][key]) for number in sorted(batches)])
            # A machine that went down may have lost batches and kept the row.
            if len(values) == row["n"]:
                found[key] = values
        return found

    def batch(self, cells: Iterable[Cell], number: int) -> dict[str, np.ndarray]:
        """What is known of a batch: the signs of those cells that were measured before.

        Whatever else was noticed of its images comes with them. Lines are found by the cell, so
        that a command which asks for more cells of the same images finds those that are there.
        """
        found: dict[str, str] = {}
        for cell in cells:
            signs = self._batches.get(cell.key, {}).get(number, {})
            found |= {n: text for n, text in signs.items() if n == cell.key or not _is_key(n)}
        return {name: _unpack(text) for name, text in found.items()}

    def write_batch(self, number: int, signs: Mapping[str, np.ndarray]) -> None:
        """Keeps the signs of a batch: bool [n] under the keys of cells and under other names."""
        packed = {name: _pack(values) for name, values in signs.items()}
        _append(self._folder / BATCHES, {"batch": number, "signs": packed})
        self._keep(number, packed)

    def _keep(self, number: int, signs: dict[str, str]) -> None:
        for key in filter(_is_key, signs):
            self._batches.setdefault(key, {}).setdefault(number, signs)


def current_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of results.jsonl with the keys of today, whichever version wrote it.

    Raises:
        ValueError: if `smoothed` is neither a bool nor null.
    """
    kept = {name: value for name, value in line.items() if name != _SMOOTHED}
    if _SMOOTHED in line:
        smoothed = line[_SMOOTHED]
        if smoothed is not None and not isinstance(smoothed, bool):
            raise ValueError(f'expected bool or null "{_SMOOTHED}", got {smoothed!r}')
        kept.setdefault("preprocess", _PREPROCESS_OF[smoothed])
    return kept


def _read_row(line: Any) -> tuple[tuple[str, str], dict[str, Any]]:
    row = current_line(line)
    return (Cell(*(row[name] for name in Cell._fields)).key, row["metric"]), row


def _read_batch(line: Any) -> tuple[int, dict[str, str]]:
    signs = line["signs"].items()
    return line["batch"], {Cell.parse(n).key if _is_key(n) else n: text for n, text in signs}


def _is_key(name: str) -> bool:
    """Whether signs of that name are those of a cell; keys are lists in JSON."""
    return name.startswith("[")


def _recover(path: Path, read: Callable[[Any], _Line]) -> list[_Line]:
    """The lines of a file, as `read` has them; one that a crash cut off at the end is taken out."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    lines = []
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            lines.append(read(json.loads(text)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{path}, line {number}: expected a row of an evaluation, got {text[:60]!r}; "
                "nothing was changed. Mend or move the file, or give another --out."
            ) from error
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
