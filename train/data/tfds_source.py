"""Any TFDS image classification set.

Prepared data is read by TFDS's random access sources, without TensorFlow. Preparing needs the
network and TensorFlow; both are checked before, because TFDS itself retries for minutes.
"""

import difflib
import importlib.util
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isvs._command import NotInstalledError
from train.data.dataset import ArraySplit, Dataset, Record, hash_text

MOST_BYTES_IN_MEMORY = 512 * 2**20  # a training split that decodes to more than this is streamed

_HOSTS = {"cifar10": "www.cs.toronto.edu", "cifar100": "www.cs.toronto.edu"}
_ANY_HOST = "storage.googleapis.com"  # TFDS's own store
_NETWORK_SECONDS = 3.0


class TfdsSplit:
    """One split of prepared TFDS data, read picture by picture.

    Args:
        directory: of the prepared data, down to the version.
        split: TFDS name of the split, slices allowed.
        limit: keep the first so many rows.
    """

    def __init__(self, directory: str, split: str, limit: int | None):
        self._directory = directory
        self._split = split
        self._source: Any = None
        rows = len(self._open())
        self._length = rows if limit is None else min(rows, limit)
        sizes = (f"{p.name} {p.stat().st_size}" for p in sorted(Path(directory).iterdir()))
        self.fingerprint = hash_text((split, str(self._length), *sizes))

    def _open(self) -> Any:
        if self._source is None:
            self._source = _data_source(
                _tfds(self._directory).builder_from_directory(self._directory), self._split
            )
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes open the files again for themselves.
        return self.__dict__ | {"_source": None}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Record:
        example = self._open()[index]
        image = np.asarray(example["image"])  # [H, W, 1, 3 or 4]
        image = image[..., :3] if image.shape[-1] >= 3 else image[..., :1].repeat(3, axis=-1)
        return {"image": image, "label": int(example["label"]), "index": index}

    def load(self, *, original_order: bool) -> ArraySplit:
        """Decodes all rows into memory, as they are in the files or sorted by their "id"."""
        source = self._open()
        rows = range(len(source) if original_order else self._length)
        examples = [source[row] for row in rows]
        if original_order:
            examples.sort(key=lambda example: example["id"])
            examples = examples[: self._length]
        images = np.stack([example["image"] for example in examples])
        labels = np.array([example["label"] for example in examples], np.int32)
        return ArraySplit(images, labels)


def open_tfds(
    name: str,
    *,
    data_dir: Path | None,
    limit_train: int | None,
    limit_test: int | None,
    stream_size: int,
    original_order: bool = False,
    also_looked_in: Sequence[Path] = (),
) -> Dataset:
    """Opens a TFDS set, preparing it first when it is not on disk yet.

    The test split is TFDS's "test", or "validation" where test is absent or has no labels; a set
    with "train" alone gives its last tenth (TFDS shuffles when it prepares).

    Args:
        name: TFDS name, with configuration and version if wanted.
        data_dir: where prepared data may lie and new data goes; None means TFDS's own place.
        limit_train: keep the first so many training images.
        limit_test: keep the first so many test images.
        stream_size: side of streamed pictures after cropping.
        original_order: sort rows by their "id", which undoes TFDS's shuffling.
        also_looked_in: places to name when there is nothing.

    Returns:
        The data set, in memory when its pictures have one shape and are few enough.
    """
    builder = _prepared_builder(name, data_dir, also_looked_in)
    _check_features(builder, name)
    train_split, test_split = _split_names(builder, name)
    directory = str(builder.data_dir)
    train = TfdsSplit(directory, train_split, limit_train)
    test = TfdsSplit(directory, test_split, limit_test)
    features = builder.info.features
    shape, class_names = features["image"].shape, tuple(features["label"].names)
    if None not in shape and len(train) * int(np.prod(shape)) <= MOST_BYTES_IN_MEMORY:
        return Dataset(
            name=name,
            image_shape=(shape[0], shape[1], shape[2]),
            class_names=class_names,
            train=train.load(original_order=original_order),
            test=test.load(original_order=original_order),
        )
    return Dataset(name, (stream_size, stream_size, 3), class_names, train, test)


def _tfds(name: str, also_looked_in: Sequence[Path] = ()) -> Any:
    try:
        import tensorflow_datasets
    except ImportError as error:
        places = ", ".join(map(str, also_looked_in))
        raise NotInstalledError(
            f"{name}: "
            + (f"not found in {places}, and " if places else "")
            + f"TFDS, which would read it, is not installed ({error}): pip install -e '.[tfds]'; "
            "or use the embedded data: --dataset shapes"
        ) from error
    return tensorflow_datasets


def _data_source(builder: Any, split: str) -> Any:
    try:
        return builder.as_data_source(split=split)
    except NotImplementedError as error:
        raise ValueError(
            f"{builder.data_dir}: prepared as {builder.info.file_format}, which allows no random "
            "access; expected array_record. Give another --data-dir to prepare it anew"
        ) from error


def _prepared_builder(name: str, data_dir: Path | None, also_looked_in: Sequence[Path]) -> Any:
    """The builder of data on disk, prepared now if need be and possible."""
    tfds = _tfds(name, also_looked_in)
    own_place = Path(tfds.core.constants.DATA_DIR).expanduser()
    places = [own_place] if data_dir is None else [data_dir, own_place]
    for place in places:
        # TFDS logs a warning for a place without the data, so ask it only about places with some.
        if (place / name.split("/")[0].split(":")[0]).is_dir():
            builder = _builder(name, place)
            if builder.is_prepared():
                return builder
    builder = _builder(name, places[0])
    looked_in = ", ".join(str(place) for place in (*also_looked_in, *places))
    host = _HOSTS.get(name, _ANY_HOST)
    if not reachable(host):
        raise FileNotFoundError(
            f"{name}: not found, and no network to fetch it ({host} did not answer within "
            f"{_NETWORK_SECONDS:g} s). Looked in: {looked_in}. Put the data there (--data-dir), "
            "or use the embedded data: --dataset shapes"
        )
    if importlib.util.find_spec("tensorflow") is None:
        raise NotInstalledError(
            f"{name}: not found in {looked_in}. Preparing it once needs TensorFlow: "
            "pip install -e '.[tfds]'; or use the embedded data: --dataset shapes"
        )
    builder.download_and_prepare(file_format="array_record")
    return builder


def _builder(name: str, place: Path) -> Any:
    tfds = _tfds(name)
    try:
        return tfds.builder(name, data_dir=str(place))
    except tfds.core.DatasetNotFoundError as error:
        known = tfds.list_builders(with_community_datasets=False)  # those would ask the network
        close = difflib.get_close_matches(name, known, n=5, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else "see tfds.list_builders()"
        raise ValueError(f"TFDS knows no data set {name!r}: {hint}") from error


def reachable(host: str, port: int = 443, seconds: float = _NETWORK_SECONDS) -> bool:
    """True when a connection to the host, or to the proxy in its place, opens in time."""
    proxy = urllib.parse.urlsplit(urllib.request.getproxies().get("https", ""))
    if proxy.hostname and not urllib.request.proxy_bypass(host):
        host, port = proxy.hostname, proxy.port or 80
    answered = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=seconds).close()
        except OSError:
            return
        answered.set()

    # Looking up the name may hang for longer than the time-out of the connection itself.
    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(seconds)
    return answered.is_set()


def _check_features(builder: Any, name: str) -> None:
    """Raises ValueError unless each example is a picture with a class."""
    tfds = _tfds(name)
    features = builder.info.features
    if (
        not {"image", "label"} <= set(features)
        or not isinstance(features["image"], tfds.features.Image)
        or not isinstance(features["label"], tfds.features.ClassLabel)
        or features["image"].np_dtype != np.uint8
    ):
        raise ValueError(
            f"{name}: expected an image classification set with a uint8 'image' and a class "
            f"'label', got features {list(features)}"
        )


def _split_names(builder: Any, name: str) -> tuple[str, str]:
    splits = builder.info.splits
    if "train" not in splits:
        raise ValueError(f"{name}: expected a split 'train', got {list(splits)}")
    for split in ("test", "validation"):
        if split in splits and int(_data_source(builder, split)[0]["label"]) >= 0:
            return "train", split
    return "train[:90%]", "train[90%:]"
