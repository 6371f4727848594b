"""Brings a data set to the devices: whole, with batches as rows of it, or streamed batch by batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import jax
import numpy as np

from train.codes import CodeTable, WithCodes, open_codes
from train.config import Config
from train.data import augment
from train.data.crops import RandomResizedCrop
from train.data.dataset import ArraySplit, Dataset
from train.data.order import eval_indices, host_slice, steps_per_epoch, train_indices
from train.data.pipeline import TrainStream, TrainTransform, eval_stream
from train.methods import Method
from train.sharding import Layout, wait_for_all
from train.step import Augment

DeviceBatch = dict[str, jax.Array]


class Feed(Protocol):
    """A data set on its way to the network.

    Attributes:
        train: the resident training set, empty if it is streamed.
        test: the same for testing.
        steps_per_epoch: complete batches in an epoch.
        augment: what happens to training images on the device.
    """

    train: DeviceBatch
    test: DeviceBatch
    steps_per_epoch: int
    augment: Augment

    def train_batches(self, first_step: int) -> Iterator[DeviceBatch]:
        """Batches from a step on, without end."""

    def test_batches(self) -> Iterator[DeviceBatch]:
        """The test set once, in order."""


def open_feed(config: Config, dataset: Dataset, method: Method, layout: Layout) -> Feed:
    """The feed that suits a data set.

    Raises:
        ValueError: if the method needs its images on the device and the set is streamed.
    """
    if dataset.in_memory:
        return ResidentFeed(config, dataset, method, layout)
    if method.resident_only:
        literal = config.iterate == "lbi"
        cause = "--iterate lbi" if literal else f"--method {config.method}"
        raise ValueError(
            f"{cause} keeps a state for every image on the device, and {dataset.name} is streamed; "
            f"use {'--iterate path' if literal else 'another method'}"
        )
    return StreamFeed(config, dataset, method, layout)


def _codes(config: Config, dataset: Dataset, split: str, layout: Layout) -> CodeTable:
    """The codes of a split; the main process makes them, the others read (or make) them after."""

    def find() -> CodeTable:
        return open_codes(
            getattr(dataset, split),
            dataset.image_shape,
            label=f"{dataset.name} {split}",
            cache_dir=config.cache_dir and Path(config.cache_dir),
            silent=not layout.is_main,
        )

    if layout.is_main:
        table = find()
    wait_for_all(f"codes {split}")
    return table if layout.is_main else find()


class ResidentFeed:
    """Both splits on every device as bytes, with their codes; a batch is only the rows' numbers."""

    def __init__(self, config: Config, dataset: Dataset, method: Method, layout: Layout) -> None:
        assert isinstance(dataset.train, ArraySplit) and isinstance(dataset.test, ArraySplit)
        assert config.batch_size is not None and config.crop_padding is not None
        self._seed, self._batch_size, self._layout = config.seed, config.batch_size, layout
        self._eval_batch_size = config.eval_batch_size
        self._train_rows, self._test_rows = len(dataset.train), len(dataset.test)
        self.steps_per_epoch = steps_per_epoch(self._train_rows, self._batch_size)
        padding, flip = config.crop_padding, config.flip
        self.augment: Augment = lambda key, images: augment.augment(key, images, padding, flip)
        self.train = self._place(config, dataset, "train", method.train_codes)
        self.test = self._place(config, dataset, "test", method.test_codes)

    def _place(self, config: Config, dataset: Dataset, split: str, coded: bool) -> DeviceBatch:
        data = getattr(dataset, split)
        arrays = {"image": data.images, "label": data.labels}
        if coded:
            arrays |= _codes(config, dataset, split, self._layout).arrays()
        placed: DeviceBatch = self._layout.replicate(arrays)
        return placed

    def train_batches(self, first_step: int) -> Iterator[DeviceBatch]:
        """Row numbers in the order of `train.data.order`."""
        mine = host_slice(self._batch_size, jax.process_index(), jax.process_count())
        epoch, step = divmod(first_step, self.steps_per_epoch)
        while True:
            order = train_indices(self._seed, epoch, self._train_rows, self._batch_size)
            for rows in order[step:, mine]:
                yield self._layout.shard({"index": rows, "mask": np.ones(len(rows), bool)})
            epoch, step = epoch + 1, 0

    def test_batches(self) -> Iterator[DeviceBatch]:
        """Row numbers in order; the last batch is filled up."""
        mine = host_slice(self._eval_batch_size, jax.process_index(), jax.process_count())
        for rows, mask in zip(*eval_indices(self._test_rows, self._eval_batch_size), strict=True):
            yield self._layout.shard({"index": rows[mine], "mask": mask[mine]})


class StreamFeed:
    """Pictures decoded by worker processes, with their codes where the method reads them.

    Codes belong to a picture as a whole, so methods that read them get its centre crop, and the
    random crop follows on the device, after smoothing.
    """

    def __init__(self, config: Config, dataset: Dataset, method: Method, layout: Layout) -> None:
        assert config.batch_size is not None
        self._config, self._layout = config, layout
        self._size = dataset.image_shape[0]
        self._train, self._test = dataset.train, dataset.test
        self.steps_per_epoch = steps_per_epoch(len(dataset.train), config.batch_size)
        self.train: DeviceBatch = {}
        self.test: DeviceBatch = {}
        self._train_transform: TrainTransform = RandomResizedCrop(self._size, config.flip)
        self._test_transform = None
        self.augment: Augment = lambda key, images: images  # cropped and flipped by the workers
        if method.train_codes:
            codes = _codes(config, dataset, "train", layout)
            self._train = WithCodes(dataset.train, codes, self._size)
            self._train_transform = _as_it_is
            flip = config.flip
            self.augment = lambda key, images: augment.random_resized_crop(key, images, flip)
        if method.test_codes:
            codes = _codes(config, dataset, "test", layout)
            self._test = WithCodes(dataset.test, codes, self._size)
            self._test_transform = _as_it_is

    def train_batches(self, first_step: int) -> Iterator[DeviceBatch]:
        """Batches of pictures, from any step."""
        assert self._config.batch_size is not None
        epoch, step = divmod(first_step, self.steps_per_epoch)
        with TrainStream(
            self._train,
            image_size=self._size,
            batch_size=self._config.batch_size,
            seed=self._config.seed,
            num_workers=self._config.num_workers,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
            transform=self._train_transform,
        ) as stream:
            stream.set_state({**stream.get_state(), "epoch": epoch, "step": step})
            yield from map(self._layout.shard, stream)

    def test_batches(self) -> Iterator[DeviceBatch]:
        """Batches of pictures, in order."""
        yield from map(
            self._layout.shard,
            eval_stream(
                self._test,
                image_size=self._size,
                batch_size=self._config.eval_batch_size,
                num_workers=self._config.num_workers,
                process_index=jax.process_index(),
                process_count=jax.process_count(),
                transform=self._test_transform,
            ),
        )


def _as_it_is(record, rng=None):  # type: ignore[no-untyped-def]
    return record
