"""chunks.jsonl: what each preprocessing did on each chunk of images, a line for each pair."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eval.cleaning.columns import BENCHMARK, NOISES, SEED, salt
from eval.corruptions import SEVERITIES
from eval.results import _append, _recover
from train.data.dataset import ArraySplit, hash_text

CHUNKS = "chunks.jsonl"


class Chunk(NamedTuple):
    """Some neighbouring rows of the test split.

    Attributes:
        start: the first of them.
        split: their images and labels.
    """

    start: int
    split: ArraySplit

    @property
    def rows(self) -> np.ndarray:
        """int32 [B], the rows in the test split."""
        return np.arange(self.start, self.start + len(self.split), dtype=np.int32)


class Counts(NamedTuple):
    """What was found on a chunk, by column.

    Attributes:
        right: how many images were named rightly.
        psnr: the sum over the images, in dB.
    """

    right: Mapping[str, int]
    psnr: Mapping[str, float]


def plan(test: ArraySplit, size: int) -> list[Chunk]:
    """The test split in chunks; the last one may be shorter."""
    return [
        Chunk(start, ArraySplit(test.images[start:stop], test.labels[start:stop]))
        for start in range(0, len(test), size)
        for stop in [start + size]
    ]


class ChunkFile:
    """The lines of a folder. Those made under another definition, or by another network, are passed over.

    Args:
        folder: where chunks.jsonl lies, or will.
        weights: digest of the network's weights.

    Raises:
        ValueError: if the file holds a line that is not ours, before its last.
    """

    def __init__(self, folder: Path, weights: str) -> None:
        self._path, self._weights = folder / CHUNKS, weights
        self._lines = {line["digest"]: line for line in _recover(self._path, _read_line)}

    @classmethod
    def snapshot(cls, folder: Path, weights: str) -> "ChunkFile":
        """The lines to read only, of a copy: mending the file itself could disturb a run that writes to it."""
        with tempfile.TemporaryDirectory() as copy:
            if (folder / CHUNKS).exists():
                shutil.copy(folder / CHUNKS, copy)
            return cls(Path(copy), weights)

    def read(self, preprocess: str, definition: str, chunk: Chunk) -> Counts | None:
        """What was found earlier."""
        line = self._lines.get(self._digest(preprocess, definition, chunk))
        return None if line is None else Counts(line["right"], line["psnr"])

    def write(self, preprocess: str, definition: str, chunk: Chunk, counts: Counts) -> None:
        """Appends a line."""
        line: dict[str, Any] = {
            "preprocess": preprocess,
            "start": chunk.start,
            "images": len(chunk.split),
            "digest": self._digest(preprocess, definition, chunk),
            **counts._asdict(),
        }
        _append(self._path, line)
        self._lines[line["digest"]] = line

    def _digest(self, preprocess: str, definition: str, chunk: Chunk) -> str:
        """Of all that decides a line: the network, the preprocessing, the images and their noise."""
        salts = [salt(name, severity) for name in NOISES for severity in SEVERITIES]
        images = (str(chunk.start), chunk.split.fingerprint)
        return hash_text((self._weights, preprocess, definition, *images, str(SEED), *salts))


def _read_line(line: Any) -> dict[str, Any]:
    """The line; raises KeyError or TypeError if it is not one of ours."""
    counts = {key: {column: line[key][column] for column in BENCHMARK} for key in Counts._fields}
    return {**{key: line[key] for key in ("preprocess", "start", "images", "digest")}, **counts}
