"""Class folders of picture files: `folder:DIR` and `imagenet100`.

The layout is DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg (or test in place of val). Classes are
numbered in the sorted order of their folders' names.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from train.data.dataset import ByteArray, Dataset, Record, hash_text, spread

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})

_WHOLE_IMAGENET = 1000  # classes
_TEST_FOLDERS = ("val", "test")


def imagenet100_classes() -> tuple[str, ...]:
    """The 100 ImageNet classes of contrastive multiview coding (Tian et al., 2020), sorted.

    The list is the file imagenet100.txt that its authors published with their code.
    """
    text = Path(__file__).with_name("imagenet100.txt").read_text(encoding="utf-8")
    return tuple(sorted(text.split()))


class FolderSplit:
    """One split's picture files, decoded when asked for.

    Args:
        root: folder of class folders.
        class_names: the class folders to read, in the order of their labels.
        limit: keep so many files, spread evenly over the classes.
    """

    def __init__(self, root: Path, class_names: tuple[str, ...], limit: int | None):
        self._root = str(root)
        names: list[str] = []
        sizes: list[int] = []
        labels: list[int] = []
        for label, class_name in enumerate(class_names):
            for name, size in _pictures(root / class_name):
                names.append(f"{class_name}/{name}")
                sizes.append(size)
                labels.append(label)
        if not names:
            raise ValueError(
                f"{root}: expected pictures ({', '.join(sorted(PICTURE_SUFFIXES))}) in class "
                "folders, found none"
            )
        rows = spread(len(names), limit)
        self._names = [names[row] for row in rows]
        self.labels = np.array(labels, np.int32)[rows]  # [N]
        self.fingerprint = hash_text(f"{names[row]} {sizes[row]}" for row in rows)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Record:
        image = decode_picture(Path(self._root) / self._names[index])
        return {"image": image, "label": int(self.labels[index]), "index": index}


def _pictures(folder: Path) -> list[tuple[str, int]]:
    """Names and sizes of the picture files in a folder, sorted."""
    if not folder.is_dir():
        return []
    return sorted(
        (path.name, path.stat().st_size)
        for path in folder.iterdir()
        if path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".")
    )


def decode_picture(path: Path) -> ByteArray:
    """Reads a picture file as uint8 RGB [H, W, 3].

    Args:
        path: any format that Pillow reads.

    Returns:
        The pixels, in the picture's own size.

    Raises:
        ValueError: if the file is no whole picture; the message names it.
    """
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    # Pillow reports damage in several ways: SyntaxError comes from its PNG reader.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path}: cannot decode this picture ({error})") from error


def open_folder(
    name: str,
    root: Path,
    *,
    image_size: int,
    limit_train: int | None,
    limit_test: int | None,
) -> Dataset:
    """Opens class folders.

    Args:
        name: of the data set; "imagenet100" keeps that list's classes when `root` holds them.
        root: folder with train/ and val/ (or test/).
        image_size: side of the pictures after cropping.
        limit_train: keep so many training pictures, spread evenly over the classes.
        limit_test: the same for testing.

    Returns:
        The data set, streamed.
    """
    train_root = root / "train"
    test_root = next((root / f for f in _TEST_FOLDERS if (root / f).is_dir()), None)
    if not train_root.is_dir() or test_root is None:
        found = sorted(p.name for p in root.iterdir())[:20] if root.is_dir() else "no such folder"
        raise FileNotFoundError(
            f"{name}: expected folders train and val (or test) in {root}, found {found}"
        )
    present = _class_folders(train_root)
    class_names = _choose_imagenet100(root, present) if name == "imagenet100" else present
    unknown = set(_class_folders(test_root)) - set(present)
    if unknown:
        raise ValueError(
            f"{test_root}: expected only classes that {train_root} has, "
            f"got also {sorted(unknown)[:10]}"
        )
    return Dataset(
        name=name,
        image_shape=(image_size, image_size, 3),
        class_names=class_names,
        train=FolderSplit(train_root, class_names, limit_train),
        test=FolderSplit(test_root, class_names, limit_test),
    )


def _class_folders(root: Path) -> tuple[str, ...]:
    return tuple(
        sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    )


def _choose_imagenet100(root: Path, present: tuple[str, ...]) -> tuple[str, ...]:
    wanted = imagenet100_classes()
    missing = sorted(set(wanted) - set(present))
    if not missing:
        return wanted
    if len(present) >= _WHOLE_IMAGENET:
        raise ValueError(
            f"{root}: holds {len(present)} classes, but of the 100 of imagenet100 these lack: "
            f"{missing[:10]}"
        )
    return present
