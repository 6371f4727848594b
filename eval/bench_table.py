"""What a benchmark yields: rows of ours against a peer, as a table and as JSON."""

import dataclasses
import itertools
import json
import os
import pathlib
import platform
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from eval.timing import Measured

_HEADINGS = ("", "what", "ours", "peer", "ratio", "target", "")


@dataclasses.dataclass(frozen=True)
class Target:
    """A bound on a row's ratio or, where it has no peer, on ours."""

    kind: Literal["at most", "at least"]
    bound: float

    def met(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        return value <= self.bound if self.kind == "at most" else value >= self.bound


def at_most(bound: float) -> Target:
    """The value must not exceed the bound."""
    return Target("at most", bound)


def at_least(bound: float) -> Target:
    """The value must reach the bound."""
    return Target("at least", bound)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      what: what was measured, and against whom.
      unit: of ours and of the peer.
      ours: our measurement.
      peer: the peer's; None if there is none to compare with, or it could not be run.
      target: what the ratio (ours without a peer) is held to.
      note: what a reader must know to judge the numbers.
      compile_seconds: what compiling ours took; it is not in `ours`.
    """

    what: str
    unit: str
    ours: Measured
    peer: Measured | None = None
    target: Target | None = None
    note: str = ""
    compile_seconds: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer's; for times, below one is faster."""
        return None if self.peer is None else self.ours.value / self.peer.value

    @property
    def verdict(self) -> str:
        """``"met"``, ``"missed"``, or empty without a target."""
        if self.target is None:
            return ""
        judged = self.ours.value if self.ratio is None else self.ratio
        return "met" if self.target.met(judged) else "missed"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**dataclasses.asdict(self), "ratio": self.ratio, "verdict": self.verdict}


def format_table(rows: Sequence[Row]) -> str:
    """The table, with the notes below it under the numbers of their rows."""
    cells = [_HEADINGS, *(_cells(number, row) for number, row in enumerate(rows, 1))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    lines = [_join(line, widths) for line in cells]
    lines.insert(1, "-" * len(lines[0]))
    lines += ["", "ratio = ours / peer; ± is half the distance of the quartiles.", ""]
    # Neighbours that say the same say it once.
    for text, group in itertools.groupby(enumerate(rows, 1), lambda item: _note(item[1])):
        if text:
            numbers = ", ".join(str(number) for number, _ in group)
            lines += textwrap.wrap(f"{numbers:>2}  {text}", 120, subsequent_indent="    ")
    return "\n".join(lines)


def _note(row: Row) -> str:
    compiled = f"Compiled in {row.compile_seconds:.1f} s." if row.compile_seconds else ""
    return " ".join(filter(None, (row.note, compiled)))


def _cells(number: int, row: Row) -> tuple[str, ...]:
    sign = {"at most": "<=", "at least": ">="}
    plain = row.ratio is None
    target = row.target and f"{sign[row.target.kind]} {_format_bound(row.target.bound, plain)}"
    return (
        str(number),
        row.what,
        _format_measured(row.ours, row.unit),
        "" if row.peer is None else _format_measured(row.peer, row.unit),
        "" if row.ratio is None else _format_ratio(row.ratio),
        target or "",
        row.verdict,
    )


def _join(cells: Iterable[str], widths: Sequence[int]) -> str:
    numeric = (0, 2, 3, 4, 5)
    return "  ".join(
        cell.rjust(width) if column in numeric else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def _format_measured(measured: Measured, unit: str) -> str:
    spread = f" ±{100 * measured.spread:.0f}%" if measured.spread else ""
    return f"{_format_number(measured.value)} {unit}{spread}"


def _format_bound(bound: float, plain: bool) -> str:
    return _format_number(bound) if plain else _format_ratio(bound)


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _format_ratio(ratio: float) -> str:
    """Below one as a fraction: 1/120 is read more easily than 0.0083."""
    return f"{ratio:.2f}" if ratio >= 1 else f"1/{_format_number(1 / ratio)}"


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "numpy": np.__version__,
    }


def _cpu_model() -> str:
    information = pathlib.Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write_json(path: pathlib.Path, content: dict[str, Any]) -> None:
    """Writes a file whole or not at all."""
    text = json.dumps(content, indent=2, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text + "\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
