"""Entry-level codes of a data set: made once, kept on disk, verified whenever they are opened.

A folder for each pair of data and solver holds parts of about 16 MB. A part is the codes of some
rows, one byte for each edge, followed by their checksum; it appears whole or not at all. So an
interrupted encoding goes on where it stopped, and a damaged part is made again, alone.
"""

import dataclasses
import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import isvs
from isvs import grid
from train.data.crops import CentreCrop
from train.data.dataset import ArraySplit, ByteArray, Record, StreamSplit, hash_text
from train.progress import Progress

# Changes whenever the same data and solver give other bytes; so may a new version of the library.
_FORMAT = f"entry levels 1, isvs {isvs.__version__}"
_PART_BYTES = 1 << 24
_PIECE_PIXELS = 1 << 19  # encoded at a time: the progress bar moves, and devices are filled
_DIGEST_BYTES = 16
_DECODING_THREADS = 8

ReadRows = Callable[[int, int], ByteArray]


class CodeTable:
    """Codes by row, mapped from disk; cheap to send to another process.

    Args:
        parts: files in order, each with its first row.
        length: rows in all.
        image_shape: (H, W, C).
    """

    def __init__(
        self, parts: list[tuple[int, Path]], length: int, image_shape: tuple[int, int, int]
    ) -> None:
        self._parts, self._length = parts, length
        self._height, self._width, _ = image_shape
        self._maps: list[ByteArray] = []

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> dict[str, ByteArray]:
        if not self._maps:
            self._maps = [self._map(number) for number in range(len(self._parts))]
        part = row // self._rows_per_part
        return self._split(self._maps[part][row - self._parts[part][0]])

    def arrays(self) -> dict[str, ByteArray]:
        """All rows: `down` uint8 [N, H-1, W] and `right` uint8 [N, H, W-1]."""
        return self._split(np.concatenate([self._map(i) for i in range(len(self._parts))]))

    @property
    def _rows_per_part(self) -> int:
        return self._parts[1][0] if len(self._parts) > 1 else self._length

    def _map(self, number: int) -> ByteArray:
        first, path = self._parts[number]
        last = self._parts[number + 1][0] if number + 1 < len(self._parts) else self._length
        shape = (last - first, grid.edge_count(self._height, self._width))
        return np.memmap(path, np.uint8, "r", shape=shape)

    def _split(self, codes: ByteArray) -> dict[str, ByteArray]:
        border = (self._height - 1) * self._width
        batch = codes.shape[:-1]
        return {
            "down": codes[..., :border].reshape(*batch, self._height - 1, self._width),
            "right": codes[..., border:].reshape(*batch, self._height, self._width - 1),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": []}  # a map would be sent as the bytes it shows


def default_cache_dir() -> Path:
    """The user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "isvs" / "codes"


def open_codes(
    split: ArraySplit | StreamSplit,
    image_shape: tuple[int, int, int],
    *,
    label: str,
    cache_dir: Path | None = None,
    solver: isvs.Flow | None = None,
    silent: bool = False,
) -> CodeTable:
    """The codes of a split, read from disk or made now.

    Streamed pictures are encoded as `CentreCrop` shows them.

    Args:
        split: the pictures.
        image_shape: (H, W, C) of the pictures, for streamed ones after cropping.
        label: of the progress bar.
        cache_dir: in place of `default_cache_dir`.
        solver: of the encoding.
        silent: show no progress.

    Returns:
        A table with as many rows as the split.
    """
    solver = solver or isvs.Flow()
    folder = (cache_dir or default_cache_dir()) / _key(split, image_shape, solver)
    folder.mkdir(parents=True, exist_ok=True)
    edges = grid.edge_count(*image_shape[:2])
    rows = max(1, _PART_BYTES // max(edges, 1))
    starts = range(0, len(split), rows)
    parts = [(start, folder / f"{start:09d}.codes") for start in starts]
    missing = [
        (start, min(start + rows, len(split)), path)
        for start, path in parts
        if not _is_whole(path, min(rows, len(split) - start) * edges)
    ]
    if missing:
        total = sum(stop - start for start, stop, _ in missing)
        most = max(stop - start for start, stop, _ in missing)
        encode = _Encoder(_reader(split, image_shape[0]), image_shape, solver, most)
        with Progress(f"encoding {label}", total, unit="images", silent=silent) as progress:
            for start, stop, path in missing:
                _write(path, encode(start, stop, progress))
    return CodeTable(parts, len(split), image_shape)


def _key(
    split: ArraySplit | StreamSplit, image_shape: tuple[int, int, int], solver: isvs.Flow
) -> str:
    settings = dataclasses.asdict(solver)
    settings.pop("block_pixels")  # how the work is cut, not what it is
    crop = "" if isinstance(split, ArraySplit) else "centre crop"
    return hash_text(
        (_FORMAT, split.fingerprint, repr(image_shape), repr(sorted(settings.items())), crop)
    )


def _reader(split: ArraySplit | StreamSplit, size: int) -> ReadRows:
    if isinstance(split, ArraySplit):
        images = split.images
        return lambda start, stop: images[start:stop]
    crop = CentreCrop(size)
    threads = ThreadPoolExecutor(_DECODING_THREADS)  # Pillow decodes without the interpreter lock

    def read(start: int, stop: int) -> ByteArray:
        records = threads.map(lambda row: crop(split[row])["image"], range(start, stop))
        return np.stack(list(records))

    return read


@functools.partial(jax.jit, static_argnames="solver")
def _encode(images: jax.Array, solver: isvs.Flow) -> jax.Array:
    """uint8 [n, H, W, C] to codes [n, E]: edges down, then edges right."""
    space = isvs.encode(images.astype(jnp.float32) / 255, solver=solver)
    count = images.shape[0]
    return jnp.concatenate([space.down.reshape(count, -1), space.right.reshape(count, -1)], axis=1)


class _Encoder:
    """Encodes rows piece by piece, each on all devices of this host."""

    def __init__(
        self, read: ReadRows, image_shape: tuple[int, int, int], solver: isvs.Flow, most: int
    ) -> None:
        devices = jax.local_devices()
        mesh = jax.make_mesh(
            (len(devices),), ("batch",), devices=devices, axis_types=(AxisType.Auto,)
        )
        self._sharding = NamedSharding(mesh, PartitionSpec("batch"))
        self._read, self._shape, self._solver = read, image_shape, solver
        wanted = min(most, -(-_PIECE_PIXELS // (image_shape[0] * image_shape[1])))
        self._piece = -(-wanted // len(devices)) * len(devices)

    def __call__(self, start: int, stop: int, progress: Progress) -> ByteArray:
        """Codes of the rows from `start` to `stop`, uint8 [n, E]."""
        pieces = []
        for first in range(start, stop, self._piece):
            last = min(first + self._piece, stop)
            images = np.zeros((self._piece, *self._shape), np.uint8)  # one shape, one compilation
            images[: last - first] = self._read(first, last)
            codes = _encode(jax.device_put(images, self._sharding), self._solver)
            pieces.append(np.asarray(codes)[: last - first])
            progress.advance(last - first)
        return np.concatenate(pieces)


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _write(path: Path, codes: ByteArray) -> None:
    """Puts a part in its place in one move, after it has reached the disk."""
    data = np.ascontiguousarray(codes).data
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as file:
        try:
            file.write(data)
            file.write(_digest(data))
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _is_whole(path: Path, size: int) -> bool:
    """Whether a part is there and its checksum holds; a damaged one is reported."""
    if not path.is_file():
        return False
    data = np.fromfile(path, np.uint8)
    payload, digest = data[:size], data[size:].tobytes()
    if len(payload) == size and digest == _digest(payload.data):
        return True
    print(f"warning: {path} is damaged, its codes are made again", file=sys.stderr, flush=True)
    return False


class WithCodes:
    """A streamed split whose records also hold their codes, for the pictures' centre crops.

    Args:
        split: the pictures.
        codes: of all its rows.
        size: side of the crops.
    """

    def __init__(self, split: StreamSplit, codes: CodeTable, size: int) -> None:
        self._split, self._codes, self._crop = split, codes, CentreCrop(size)

    @property
    def fingerprint(self) -> str:
        """That of the pictures."""
        return self._split.fingerprint

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, index: int) -> Record:
        record: Mapping[str, Any] = {**self._crop(self._split[index]), **self._codes[index]}
        return record  # type: ignore[return-value]  # a record with two more keys
