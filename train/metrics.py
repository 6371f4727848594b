"""What a run measured: one JSON object on each line of metrics.jsonl, and TensorBoard events."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter


class MetricsWriter:
    """Appends rows; after an interruption, rows later than the checkpoint are taken back first.

    Args:
        folder: of the run.
        step: of the checkpoint that the run continues from, 0 for a new run.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / "metrics.jsonl"
        rows = [row for row in read_rows(self._path) if row["step"] <= step]
        draft = self._path.with_suffix(".tmp")
        draft.write_text("".join(map(_line, rows)), encoding="utf-8")
        draft.replace(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._events = SummaryWriter(
            str(folder / "tensorboard"), purge_step=step + 1, write_to_disk=True
        )

    def write(self, step: int, values: Mapping[str, float], *, prefix: str) -> None:
        """One row; its names become `prefix/name`."""
        named = {f"{prefix}/{name}": float(value) for name, value in values.items()}
        os.write(self._file, _line({"step": step, **named}).encode())  # one call, one whole line
        for name, value in named.items():
            self._events.add_scalar(name, value, step)

    def flush(self) -> None:
        """Brings the events to disk; lines are there already."""
        self._events.flush()

    def close(self) -> None:
        """Ends both files."""
        os.close(self._file)
        self._events.close()


def read_rows(path: Path) -> list[dict[str, float]]:
    """The whole lines of a metrics file; a line cut off by a crash does not count."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def _line(row: Mapping[str, float]) -> str:
    return json.dumps(row) + "\n"
