"""The table: rows over the images they have in common, as Markdown and as JSON, with a verdict."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.bench_table import write_json
from eval.cleaning.chunks import Chunk, ChunkFile, Counts
from eval.cleaning.columns import BENCHMARK, CLEAN, NOISES, column
from eval.corruptions import SEVERITIES

_CLOSE = 5.0  # points of accuracy behind the best
_NOISY = tuple(name for name in BENCHMARK if name != CLEAN)


@dataclasses.dataclass(frozen=True)
class Row:
    """A preprocessing, over all images of the table.

    Attributes:
        name: of the preprocessing.
        accuracy: in per cent, by column.
        psnr: mean over the images, in dB, by column.
        images_per_second: None if it takes no time, or was not measured.
    """

    name: str
    accuracy: Mapping[str, float]
    psnr: Mapping[str, float]
    images_per_second: float | None = None

    @property
    def mean(self) -> float:
        """Accuracy over all columns."""
        return _mean(self.accuracy, BENCHMARK)

    def mean_of(self, noise: str) -> float:
        """Accuracy over the severities of a noise."""
        return _mean(self.accuracy, [column(noise, severity) for severity in SEVERITIES])

    @property
    def noisy_psnr(self) -> float:
        """PSNR over the columns with noise."""
        return _mean(self.psnr, _NOISY)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        means = {noise: self.mean_of(noise) for noise in NOISES}
        return {
            **dataclasses.asdict(self),
            "mean": self.mean,
            "mean_by_noise": means,
            "noisy_psnr": self.noisy_psnr,
        }


def _mean(values: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(values[name] for name in names) / len(names)


def in_common(
    file: ChunkFile,
    definitions: Mapping[str, str],
    plan: Sequence[Chunk],
    rates: Mapping[str, float | None],
) -> tuple[int, list[Row]]:
    """The rows that have any chunk, over the chunks that all of these have.

    Args:
        file: of the chunks.
        definitions: of the rows that may be shown, by name.
        plan: the chunks to look for.
        rates: images per second, as far as they are known.

    Returns:
        How many images, and the rows.

    Raises:
        ValueError: if no chunk is common to all.
    """
    found: dict[str, dict[int, Counts]] = {}
    for name, definition in definitions.items():
        read = {chunk.start: file.read(name, definition, chunk) for chunk in plan}
        there = {start: counts for start, counts in read.items() if counts is not None}
        if there:
            found[name] = there
    common = [chunk for chunk in plan if found and all(chunk.start in f for f in found.values())]
    if not common:
        raise ValueError(
            "expected chunks that are done for every row shown, got "
            + (", ".join(f"{len(there)} of {name}" for name, there in found.items()) or "none")
            + "; repeat the options they were made with, or show fewer rows with --preprocess"
        )
    images = sum(len(chunk.split) for chunk in common)
    rows = [
        _row(name, [found[name][chunk.start] for chunk in common], images, rates.get(name))
        for name in found
    ]
    return images, rows


def _row(name: str, parts: Sequence[Counts], images: int, rate: float | None) -> Row:
    return Row(
        name,
        {key: 100 * sum(part.right[key] for part in parts) / images for key in BENCHMARK},
        {key: sum(part.psnr[key] for part in parts) / images for key in BENCHMARK},
        rate,
    )


def verdict(rows: Sequence[Row]) -> list[str]:
    """Which row is best by its mean, and which of those close to it are fast."""
    best = max(rows, key=lambda row: row.mean)
    close = [row for row in rows if row.mean >= best.mean - _CLOSE]
    timed = sorted(
        (row for row in close if row.images_per_second is not None),
        key=lambda row: -(row.images_per_second or 0),
    )
    lines = [f"Best by mean: {best.name} ({best.mean:.2f} %)."]
    if timed:
        listed = ", ".join(f"{row.name} ({_rate(row)} images/s, {row.mean:.2f} %)" for row in timed)
        lines.append(f"Within {_CLOSE:g} points of it, fastest first: {listed}.")
    untimed = [row.name for row in close if row.images_per_second is None]
    if untimed:
        lines.append(f"Also within {_CLOSE:g} points, without a time: {', '.join(untimed)}.")
    return lines


def markdown(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """What was measured, the table, and the verdict below it."""
    headings = ["preprocessing", CLEAN, *NOISES, f"mean of {len(BENCHMARK)}", "PSNR", "images/s"]
    lines = [_line(headings), _line(["---", *["---:"] * (len(headings) - 1)])]
    for row in rows:
        noises = [f"{row.mean_of(noise):.2f} ({_by_severity(row, noise)})" for noise in NOISES]
        cells = [row.name, f"{row.accuracy[CLEAN]:.2f}", *noises]
        lines.append(_line([*cells, f"{row.mean:.2f}", f"{row.noisy_psnr:.2f}", _rate(row)]))
    introduction = (
        f"Accuracy of {about['network']} in per cent on {about['images']}. Noise: the mean, and in brackets severities "
        f"1 to 5. PSNR: against the clean images, in dB, the mean over the {len(_NOISY)} columns with noise."
    )
    blocks = [
        [introduction],
        lines,
        [f"- {line}" for line in verdict(rows)],
        [f"Images per second: {about['timing']}"],
        [f"- {name}: `{definition}`" for name, definition in about["definitions"].items()],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _by_severity(row: Row, noise: str) -> str:
    return " / ".join(f"{row.accuracy[column(noise, severity)]:.1f}" for severity in SEVERITIES)


def _rate(row: Row) -> str:
    return "-" if row.images_per_second is None else f"{row.images_per_second:,.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(folder: Path, rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """Writes table.md and table.json, each whole or not at all, and returns the text."""
    text = markdown(rows, about)
    written = {**about, "rows": [row.to_json() for row in rows], "verdict": verdict(rows)}
    write_json(folder / "table.json", written)
    part = folder / f".table.md.{os.getpid()}.part"
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(folder / "table.md")
    finally:
        part.unlink(missing_ok=True)
    return text
