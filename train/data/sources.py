"""Opens a data set by its name."""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from train.data.cifar import LAYOUTS, open_cifar
from train.data.dataset import ArraySplit, Dataset, IntArray, check_limit, first
from train.data.folder import open_folder
from train.data.shapes import open_shapes
from train.data.tfds_source import open_tfds

CHOICES = ("shapes", "cifar10", "cifar100", "imagenet100", "tfds:NAME", "folder:DIR", "npz:FILE")
STREAM_SIZE = 224  # side of streamed pictures, unless told otherwise

_NPZ_ARRAYS = ("train_x", "train_y", "test_x", "test_y")


class Limits(TypedDict):
    """How many images of each split to keep."""

    limit_train: int | None
    limit_test: int | None


def open_source(
    name: str,
    *,
    data_dir: Path | None = None,
    seed: int = 0,
    limit_train: int | None = None,
    limit_test: int | None = None,
    image_size: int | None = None,
) -> Dataset:
    """Opens a data set.

    Args:
        name: one of `CHOICES`.
        data_dir: where the files lie (CIFAR, ImageNet100, TFDS); for TFDS also where new data goes.
        seed: of the set that is drawn (`shapes`); the others do not depend on it.
        limit_train: keep so many training images; the same ones each time, classes mixed.
        limit_test: the same for testing.
        image_size: side of streamed pictures after cropping, 224 if None. Sets held in memory
            keep their own size and refuse another.

    Returns:
        The data set, with its splits in memory or to be streamed.

    Raises:
        ValueError: for an unknown name, a contradictory option or damaged data.
        FileNotFoundError: if the data is neither here nor to be had.

    Example:
        >>> dataset = open_source("shapes", limit_train=100, limit_test=10)
        >>> dataset.train.images.shape
        (100, 32, 32, 3)
    """
    check_limit("limit_train", limit_train)
    check_limit("limit_test", limit_test)
    if seed < 0:
        raise ValueError(f"seed: expected zero or more, got {seed}")
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size: expected a positive number of pixels, got {image_size}")
    limits: Limits = {"limit_train": limit_train, "limit_test": limit_test}
    stream_size = image_size or STREAM_SIZE
    kind, _, argument = name.partition(":")
    if name == "shapes":
        dataset = open_shapes(seed, **limits)
    elif name in LAYOUTS:
        dataset = open_cifar(name, data_dir, **limits)
    elif name == "imagenet100":
        if data_dir is None:
            raise ValueError("imagenet100: expected --data-dir, the folder with train/ and val/")
        dataset = open_folder(name, data_dir, image_size=stream_size, **limits)
    elif kind == "folder" and argument:
        dataset = open_folder(name, Path(argument), image_size=stream_size, **limits)
    elif kind == "npz" and argument:
        dataset = open_npz(name, Path(argument), **limits)
    elif kind == "tfds" and argument:
        dataset = open_tfds(argument, data_dir=data_dir, stream_size=stream_size, **limits)
        dataset = replace(dataset, name=name)
    else:
        raise ValueError(f"unknown data set {name!r}; choose one of {', '.join(CHOICES)}")
    if image_size is not None and (image_size, image_size) != dataset.image_shape[:2]:
        raise ValueError(
            f"image_size: {name} holds pictures of {list(dataset.image_shape)} and is not "
            f"resized, got {image_size}"
        )
    return dataset


def open_npz(name: str, path: Path, limit_train: int | None, limit_test: int | None) -> Dataset:
    """Reads arrays train_x, train_y, test_x, test_y from one NumPy file, without pickles.

    Args:
        name: of the data set.
        path: file with uint8 images [N, H, W, C] (or [N, H, W]) and integer labels [N] or [N, 1].
        limit_train: keep the first so many training images.
        limit_test: keep the first so many test images.

    Returns:
        The data set, in memory; as many classes as the largest label needs.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{name}: no such file {path}")
    try:
        # An own handle, because NumPy leaves its one open when the file is damaged.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            missing = [key for key in _NPZ_ARRAYS if key not in archive.files]
            if missing:
                raise ValueError(f"lacks {missing}, it has {archive.files}")
            arrays = {key: archive[key] for key in _NPZ_ARRAYS}
    # Damage shows as any of these, depending on where it lies; a pickle as ValueError.
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: expected an .npz file with plain arrays {list(_NPZ_ARRAYS)}: {error}"
        ) from error
    splits = {}
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_x"], arrays[f"{split}_y"]
        images = images[..., None] if images.ndim == 3 else images
        splits[split] = ArraySplit(np.ascontiguousarray(images), _as_labels(path, split, labels))
    num_classes = 1 + max(int(split.labels.max(initial=0)) for split in splits.values())
    height, width, channels = splits["train"].images.shape[1:]
    return Dataset(
        name=name,
        image_shape=(height, width, channels),
        class_names=tuple(f"class {i}" for i in range(num_classes)),
        train=first(splits["train"], limit_train),
        test=first(splits["test"], limit_test),
    )


def _as_labels(path: Path, split: str, labels: np.ndarray) -> IntArray:
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{path}: expected integers in {split}_y, got {labels.dtype}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    return labels.astype(np.int32)
