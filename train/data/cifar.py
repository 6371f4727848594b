"""CIFAR-10 and CIFAR-100 from their official binary files, else from TFDS."""

import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.data.dataset import ArraySplit, Dataset, first
from train.data.tfds_source import open_tfds

_SIDE = 32
_IMAGE_BYTES = 3 * _SIDE * _SIDE


@dataclass(frozen=True)
class CifarLayout:
    """What the official archive holds.

    Attributes:
        archive: name of the compressed file.
        folder: name of the folder inside it.
        train_files: names of the training files, and the pictures in each.
        test_files: the same for testing.
        label_bytes: bytes before each picture; the last of them is the class.
        names_file: text file of class names, one on a line.
        num_classes: how many classes there are.
    """

    archive: str
    folder: str
    train_files: dict[str, int]
    test_files: dict[str, int]
    label_bytes: int
    names_file: str
    num_classes: int


LAYOUTS = {
    "cifar10": CifarLayout(
        archive="cifar-10-binary.tar.gz",
        folder="cifar-10-batches-bin",
        train_files={f"data_batch_{i}.bin": 10_000 for i in range(1, 6)},
        test_files={"test_batch.bin": 10_000},
        label_bytes=1,
        names_file="batches.meta.txt",
        num_classes=10,
    ),
    "cifar100": CifarLayout(
        archive="cifar-100-binary.tar.gz",
        folder="cifar-100-binary",
        train_files={"train.bin": 50_000},
        test_files={"test.bin": 10_000},
        label_bytes=2,  # coarse, fine
        names_file="fine_label_names.txt",
        num_classes=100,
    ),
}


def open_cifar(
    name: str, data_dir: Path | None, limit_train: int | None, limit_test: int | None
) -> Dataset:
    """Reads the official folder or archive in `data_dir`; without either, asks TFDS.

    Both ways give the same pictures in the same order, so caches serve both.

    Args:
        name: "cifar10" or "cifar100".
        data_dir: where the folder or archive, or TFDS data, may lie.
        limit_train: keep the first so many training images.
        limit_test: keep the first so many test images.

    Returns:
        The data set, in memory.
    """
    layout = LAYOUTS[name]
    places: list[Path] = []
    if data_dir is not None:
        folder = data_dir if data_dir.name == layout.folder else data_dir / layout.folder
        archive = data_dir / layout.archive
        places = [folder, archive]
        if folder.is_dir():
            return _assemble(name, _folder_reader(folder), limit_train, limit_test)
        if archive.is_file():
            contents = _read_archive(archive, layout)
            return _assemble(name, contents.get, limit_train, limit_test)
    return open_tfds(
        name,
        data_dir=data_dir,
        limit_train=limit_train,
        limit_test=limit_test,
        stream_size=_SIDE,
        original_order=True,
        also_looked_in=places,
    )


Reader = Callable[[str], bytes | None]


def _folder_reader(folder: Path) -> Reader:
    def read(file_name: str) -> bytes | None:
        path = folder / file_name
        return path.read_bytes() if path.is_file() else None

    return read


def _read_archive(archive: Path, layout: CifarLayout) -> dict[str, bytes]:
    """Contents of the archive's files that matter, read in one pass and never written to disk."""
    sizes = {
        file_name: count * (layout.label_bytes + _IMAGE_BYTES)
        for file_name, count in (layout.train_files | layout.test_files).items()
    }
    contents = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file_name = Path(member.name).name
                wanted = file_name in sizes or file_name == layout.names_file
                # A small archive can unpack to anything: read no more than one spare byte.
                most = sizes.get(file_name, 1 << 16) + 1
                if wanted and (handle := tar.extractfile(member)) is not None:
                    contents[file_name] = handle.read(most)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"{archive}: damaged or cut short ({error}); fetch it again") from error
    return contents


def _assemble(name: str, read: Reader, limit_train: int | None, limit_test: int | None) -> Dataset:
    layout = LAYOUTS[name]
    names = (read(layout.names_file) or b"").decode("utf-8", "replace").split()
    if len(names) != layout.num_classes:
        names = [f"class {i}" for i in range(layout.num_classes)]
    return Dataset(
        name=name,
        image_shape=(_SIDE, _SIDE, 3),
        class_names=tuple(names),
        train=first(_parse(layout, layout.train_files, read), limit_train),
        test=first(_parse(layout, layout.test_files, read), limit_test),
    )


def _parse(layout: CifarLayout, files: dict[str, int], read: Reader) -> ArraySplit:
    """Labels and pictures of some files, after a check of each file's size."""
    record_bytes = layout.label_bytes + _IMAGE_BYTES
    tables = []
    for file_name, count in files.items():
        content = read(file_name)
        if content is None:
            raise ValueError(f"{layout.folder}: expected a file {file_name}, found none")
        if len(content) != count * record_bytes:
            raise ValueError(
                f"{layout.folder}/{file_name}: expected {count * record_bytes} bytes "
                f"({count} pictures), got {len(content)}: damaged or cut short; fetch it again"
            )
        tables.append(np.frombuffer(content, np.uint8).reshape(count, record_bytes))
    table = np.concatenate(tables)
    labels = table[:, layout.label_bytes - 1].astype(np.int32)
    planes = table[:, layout.label_bytes :].reshape(-1, 3, _SIDE, _SIDE)  # [N, C, H, W]
    return ArraySplit(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels)
