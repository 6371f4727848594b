"""What a data set is: two splits of labelled uint8 pictures, and a key of their content."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
ByteArray = NDArray[np.uint8]
IntArray = NDArray[np.int32]


class Record(TypedDict):
    """One labelled picture; `index` is its row in the split, whatever the order of reading."""

    image: ByteArray  # [H, W, C]
    label: int
    index: int


@runtime_checkable
class StreamSplit(Protocol):
    """A split that is read picture by picture.

    Pictures are decoded but neither resized nor cropped, so their sizes may differ; the
    pipeline brings them to one shape. Implementations are sent to worker processes, so they hold
    names of files rather than open files.
    """

    @property
    def fingerprint(self) -> str:
        """A key that changes when the content changes."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Record: ...


@dataclass(frozen=True, eq=False)
class ArraySplit:
    """A split that is held in memory whole; also readable picture by picture.

    Attributes:
        images: uint8 [N, H, W, C].
        labels: int32 [N].
        fingerprint: hash of both arrays.
    """

    images: ByteArray
    labels: IntArray
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise ValueError(
                "images: expected uint8 [N, H, W, C], "
                f"got {self.images.dtype} {list(self.images.shape)}"
            )
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != np.int32:
            raise ValueError(
                f"labels: expected int32 [{len(self.images)}], one for each image, "
                f"got {self.labels.dtype} {list(self.labels.shape)}"
            )
        # Frozen, so that nobody swaps the arrays under the fingerprint: set it by the back door.
        object.__setattr__(self, "fingerprint", _hash_arrays(self.images, self.labels))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Record:
        return {"image": self.images[index], "label": int(self.labels[index]), "index": index}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named image classification set.

    Attributes:
        name: as given to `open_source`.
        image_shape: (H, W, C) that reaches the model; for streamed splits, after cropping.
        class_names: one for each class, in the order of the labels.
        train: the split to learn from.
        test: the split to measure on.
    """

    name: str
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    train: ArraySplit | StreamSplit
    test: ArraySplit | StreamSplit

    def __post_init__(self) -> None:
        for split_name, split in (("train", self.train), ("test", self.test)):
            if len(split) == 0:
                raise ValueError(f"{self.name}: the {split_name} split holds no images")
            if isinstance(split, ArraySplit):
                self._check_arrays(split_name, split)

    def _check_arrays(self, split_name: str, split: ArraySplit) -> None:
        if split.images.shape[1:] != self.image_shape:
            raise ValueError(
                f"{self.name}: expected {split_name} images of shape "
                f"{list(self.image_shape)}, got {list(split.images.shape[1:])}"
            )
        low, high = int(split.labels.min()), int(split.labels.max())
        if low < 0 or high >= self.num_classes:
            raise ValueError(
                f"{self.name}: expected {split_name} labels from 0 to "
                f"{self.num_classes - 1}, got {low} to {high}"
            )

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def in_memory(self) -> bool:
        """True when both splits are arrays; otherwise read them through the stream pipeline."""
        return isinstance(self.train, ArraySplit) and isinstance(self.test, ArraySplit)

    @property
    def fingerprint(self) -> str:
        """Key of the content of both splits, for caches; limits are part of the content."""
        return hash_text((self.train.fingerprint, self.test.fingerprint))


def _hash_arrays(*arrays: NDArray[Any]) -> str:
    """Hash of contents, shapes and types."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def hash_text(lines: Iterable[str]) -> str:
    """Hash of a list of strings; the lengths are hashed too, so that borders count."""
    digest = hashlib.blake2b(digest_size=16)
    for line in lines:
        encoded = line.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def check_limit(option: str, limit: int | None) -> None:
    """Raises ValueError unless the limit is absent or positive."""
    if limit is not None and limit < 1:
        raise ValueError(f"{option}: expected a positive number of images, got {limit}")


def first(split: ArraySplit, limit: int | None) -> ArraySplit:
    """The first `limit` rows of a split whose rows are in no order of class."""
    if limit is None or limit >= len(split):
        return split
    return ArraySplit(split.images[:limit], split.labels[:limit])


def spread(length: int, limit: int | None) -> NDArray[np.int64]:
    """Rows spread evenly over a split sorted by class: each class keeps its share."""
    if limit is None or limit >= length:
        return np.arange(length)
    return np.arange(limit) * length // limit
