"""The published corrupted test sets, CIFAR-10-C, CIFAR-100-C and ImageNet-C, and the error that sums up the last.

published = open_published(Path("CIFAR-10-C"), dataset_labels=dataset.test.labels)
split = published["fog"].split(severity=3, limit=1000)
batches = eval_stream(split, image_size=32, batch_size=128, transform=Unchanged(32))
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eval import corruptions
from train.data.dataset import ArraySplit, ByteArray, Record, StreamSplit, check_limit
from train.data.folder import FolderSplit

SEVERITIES = corruptions.SEVERITIES
NAMES: tuple[str, ...] = (*corruptions.NAMES, "frost")

# Top-1 errors of AlexNet, means over the severities: the unit of the mean corruption error.
ALEXNET_ERRORS: dict[str, float] = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


def mean_corruption_error(errors: Mapping[str, float]) -> float:
    """The mean corruption error (mCE): errors in units of AlexNet's, averaged over the 15 corruptions.

    Args:
        errors: for each name in `ALEXNET_ERRORS` the error in [0, 1], a mean over the severities; other names are left
            out of the mean.

    Returns:
        Percent; 100 is as good as AlexNet.
    """
    missing = [name for name in ALEXNET_ERRORS if name not in errors]
    if missing:
        raise ValueError(
            f"errors: expected all {len(ALEXNET_ERRORS)} corruptions of ImageNet-C, "
            f"got none for {', '.join(missing)}"
        )
    for name in ALEXNET_ERRORS:
        if not 0 <= errors[name] <= 1:
            raise ValueError(f"errors: expected {name} in [0, 1], got {errors[name]}")
    ratios = [errors[name] / alexnet for name, alexnet in ALEXNET_ERRORS.items()]
    return 100 * sum(ratios) / len(ratios)


class PublishedCorruption(Protocol):
    """One corruption of a published set, at severities 1 to 5."""

    @property
    def name(self) -> str:
        """As in `NAMES`."""

    def split(self, severity: int, limit: int | None = None) -> ArraySplit | StreamSplit:
        """The corrupted test set at one severity.

        Args:
            severity: 1 to 5.
            limit: keep so many pictures: the first of an array, in folders spread evenly over the classes.
        """


@dataclass(frozen=True)
class Unchanged:
    """The transform for `eval_stream`: published pictures have their size already and are not resized again.

    Attributes:
        size: side that the model expects.
    """

    size: int

    def __call__(self, record: Record) -> Record:
        """Returns the record, once its size is checked."""
        height, width = record["image"].shape[:2]
        if (height, width) != (self.size, self.size):
            raise ValueError(
                f"expected published pictures of {self.size}x{self.size}, got {height}x{width} "
                f"at index {record['index']}; they are measured in their own size"
            )
        return record


def open_published(
    folder: Path,
    *,
    dataset_labels: NDArray[Any] | None = None,
    class_names: tuple[str, ...] | None = None,
) -> dict[str, PublishedCorruption]:
    """Opens a published set.

    Args:
        folder: of CIFAR-10-C or CIFAR-100-C, which holds NAME.npy and labels.npy; or of ImageNet-C, which holds
            NAME/SEVERITY/CLASS/*.JPEG, also below folders like noise/ and blur/, as its archives unpack.
        dataset_labels: of the clean test set, ``[N]``; CIFAR's are compared with the published ones.
        class_names: for ImageNet-C, the class folders to read in the order of the model's classes; by default all,
            sorted.

    Returns:
        The corruptions found, by name, in the order of `NAMES`.

    Raises:
        FileNotFoundError: if there are no corruptions, or no labels.npy.
        ValueError: if a file is not of the published form, or severities or classes lack.
    """
    folder = Path(folder)
    arrays = {name: folder / f"{name}.npy" for name in NAMES}
    arrays = {name: path for name, path in arrays.items() if path.is_file()}
    if arrays:
        labels = _load_labels(folder / "labels.npy", dataset_labels)
        return {name: ArrayCorruption(name, path, labels) for name, path in arrays.items()}
    folders = _find_folders(folder)
    if folders:
        return {name: FolderCorruption(name, path, class_names) for name, path in folders.items()}
    found = sorted(p.name for p in folder.iterdir())[:20] if folder.is_dir() else "no such folder"
    raise FileNotFoundError(
        f"{folder}: expected NAME.npy or NAME/SEVERITY/CLASS/*.JPEG with NAME among "
        f"{', '.join(NAMES)}; found {found}"
    )


class ArrayCorruption:
    """A file of CIFAR-10-C or CIFAR-100-C: the severities one after the other in one array.

    Args:
        name: of the corruption.
        path: of the file; it is mapped, not read.
        labels: int32, one for each picture of the file.
    """

    def __init__(self, name: str, path: Path, labels: NDArray[np.int32]):
        self.name, self._labels = name, labels
        self._images: ByteArray = _load(path)
        images = self._images
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
            raise ValueError(
                f"{path}: expected uint8 [N, H, W, C], got {images.dtype} {list(images.shape)}"
            )
        if len(images) == 0 or len(images) % len(SEVERITIES):
            raise ValueError(
                f"{path}: expected equally many pictures for each of {len(SEVERITIES)} severities, "
                f"got {len(images)} in all"
            )
        if len(labels) != len(images):
            raise ValueError(
                f"{path.parent / 'labels.npy'}: expected {len(images)} labels, as {path.name} has "
                f"pictures, got {len(labels)}"
            )

    def split(self, severity: int, limit: int | None = None) -> ArraySplit:
        """See `PublishedCorruption`."""
        _check(severity, limit)
        count = len(self._images) // len(SEVERITIES)
        start = (severity - 1) * count
        rows = slice(start, start + min(count, limit or count))
        return ArraySplit(self._images[rows], self._labels[rows])


class FolderCorruption:
    """A folder of ImageNet-C: SEVERITY/CLASS/*.JPEG.

    Args:
        name: of the corruption.
        root: the folder.
        class_names: see `open_published`.
    """

    def __init__(self, name: str, root: Path, class_names: tuple[str, ...] | None):
        self.name, self._root = name, root
        missing = [severity for severity in SEVERITIES if not (root / str(severity)).is_dir()]
        if missing:
            raise ValueError(
                f"{root}: expected folders 1 to {len(SEVERITIES)}, one for each severity, missing {missing}"
            )
        self._class_names = class_names

    def split(self, severity: int, limit: int | None = None) -> StreamSplit:
        """See `PublishedCorruption`."""
        _check(severity, limit)
        root = self._root / str(severity)
        present = sorted(p.name for p in root.iterdir() if p.is_dir())
        class_names = self._class_names or tuple(present)
        missing = sorted(set(class_names) - set(present))
        if missing:
            raise ValueError(
                f"{root}: expected {len(class_names)} class folders, missing {missing[:10]}"
            )
        return FolderSplit(root, class_names, limit)


def _check(severity: int, limit: int | None) -> None:
    if severity not in SEVERITIES:
        raise ValueError(
            f"severity: expected one of {', '.join(map(str, SEVERITIES))}, got {severity!r}"
        )
    check_limit("limit", limit)


def _find_folders(folder: Path) -> dict[str, Path]:
    """Folders with the names of corruptions, here or one level down."""
    if not folder.is_dir():
        return {}
    places = [folder, *sorted(p for p in folder.iterdir() if p.is_dir() and p.name not in NAMES)]
    found = {
        name: place / name
        for place in reversed(places)  # the nearer one wins
        for name in NAMES
        if (place / name).is_dir()
    }
    return {name: found[name] for name in NAMES if name in found}


def _load(path: Path) -> NDArray[Any]:
    """Maps an array file; one that holds pickled objects is refused."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: expected an array in NumPy's format ({error})") from error


def _load_labels(path: Path, dataset_labels: NDArray[Any] | None) -> NDArray[np.int32]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected the labels that are published with the pictures")
    labels = _load(path)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{path}: expected integers [N], got {labels.dtype} {list(labels.shape)}")
    if dataset_labels is not None:
        common = min(len(labels) // len(SEVERITIES), len(dataset_labels))
        differing = int((labels[:common] != np.asarray(dataset_labels)[:common]).sum())
        if differing:
            raise ValueError(
                f"{path}: expected the labels of the clean test set, but {differing} of {common} "
                "differ; is this the corrupted form of another set?"
            )
    return np.asarray(labels, np.int32)
