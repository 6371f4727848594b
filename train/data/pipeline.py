"""Streams of batches for sets too large for memory, decoded by Grain's worker processes.

The order is that of `train.data.order`, so a stream can start again from (epoch, step) with any
number of hosts and workers. A set with codes beside its pictures streams them in the same way: any
object with a length and records by index is a split, and a transform may return more keys.

This module leaves JAX alone, so that worker processes never touch an accelerator.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.data.crops import CentreCrop, RandomResizedCrop
from train.data.dataset import ArraySplit, IntArray, Record, StreamSplit
from train.data.order import epoch_permutation, eval_indices, host_slice, steps_per_epoch

Batch = dict[str, NDArray[Any]]
TrainTransform = Callable[[Record, np.random.Generator], Mapping[str, Any]]
EvalTransform = Callable[[Record], Mapping[str, Any]]

# Batches that each worker keeps ready. Grain's own default, 500, is meant for single pictures.
_BATCHES_AHEAD = 2
_THREADS = 2
_ENDLESS = 2**40  # steps; Grain wants a length


class _TrainRows:
    """Training pictures by position: step x rows of this host, for ever."""

    def __init__(
        self,
        split: ArraySplit | StreamSplit,
        transform: TrainTransform,
        *,
        seed: int,
        batch_size: int,
        rows: slice,
        first_step: int,
    ):
        self._split, self._transform, self._seed = split, transform, seed
        self._batch_size, self._rows, self._first_step = batch_size, rows, first_step
        self._share = rows.stop - rows.start
        self._steps = steps_per_epoch(len(split), batch_size)
        self._order: tuple[int, IntArray] = (-1, np.empty(0, np.int32))

    def __len__(self) -> int:
        return _ENDLESS * self._share

    def __getitem__(self, position: int) -> Mapping[str, Any]:
        step, row = divmod(position, self._share)
        epoch, step = divmod(self._first_step + step, self._steps)
        order_epoch, order = self._order
        if order_epoch != epoch:
            order = epoch_permutation(self._seed, epoch, len(self._split))
            self._order = epoch, order  # one assignment: several threads read here
        index = int(order[step * self._batch_size + self._rows.start + row])
        # The last number keeps this stream apart from that of the order, [seed, epoch].
        rng = np.random.default_rng(np.random.SeedSequence([self._seed, epoch, index, 1]))
        return {**self._transform(self._split[index], rng), "mask": True}


class _EvalRows:
    """Test pictures by position: step x rows of this host, padded."""

    def __init__(
        self,
        split: ArraySplit | StreamSplit,
        transform: EvalTransform,
        batch_size: int,
        rows: slice,
    ):
        self._split, self._transform = split, transform
        indices, mask = eval_indices(len(split), batch_size)
        self._indices, self._mask = indices[:, rows].ravel(), mask[:, rows].ravel()

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: int) -> Mapping[str, Any]:
        record = self._split[int(self._indices[position])]
        return {**self._transform(record), "mask": bool(self._mask[position])}


def _stack(records: Sequence[Mapping[str, Any]]) -> Batch:
    """One array for each key, also for keys that a transform has added."""
    batch = {key: np.stack([record[key] for record in records]) for key in records[0]}
    return batch | {key: batch[key].astype(np.int32) for key in ("label", "index")}


def _own(batch: Batch) -> Batch:
    """Copies a batch out of memory shared with a worker, which must be given back in time."""
    return {key: np.array(value) for key, value in batch.items()}


def _grain_iterator(rows: Any, share: int, num_workers: int) -> Any:
    # Grain takes long to import; sets held in memory never need it.
    import grain
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # Grain reads absl flags, which this program does not use
    batches = grain.MapDataset.source(rows).batch(share, batch_fn=_stack)
    stream = batches.to_iter_dataset(
        grain.ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_BATCHES_AHEAD)
    )
    if num_workers > 0:
        stream = stream.mp_prefetch(
            grain.MultiprocessingOptions(
                num_workers=num_workers, per_worker_buffer_size=_BATCHES_AHEAD
            )
        )
    return iter(stream)


class TrainStream(Iterator[Batch]):
    """Endless training batches of a split too large for memory.

    A batch holds image uint8 [b, H, W, C], label int32 [b], index int32 [b], mask bool [b] (all
    True), and what else the transform returns, where b is this host's share of `batch_size`.
    Use as a context manager, or `close()`, to end the worker processes.

    Args:
        split: pictures by index.
        image_size: side of the pictures after cropping.
        batch_size: of all hosts together.
        seed: of the order and of the crops: picture i of epoch e is always cropped the same.
        num_workers: processes that decode; 0 decodes in threads of this process.
        process_index: which host this is.
        process_count: how many hosts there are.
        transform: in place of `RandomResizedCrop(image_size)`; must bring pictures to one shape.
    """

    def __init__(
        self,
        split: ArraySplit | StreamSplit,
        *,
        image_size: int,
        batch_size: int,
        seed: int,
        num_workers: int = 0,
        process_index: int = 0,
        process_count: int = 1,
        transform: TrainTransform | None = None,
    ):
        self.steps_per_epoch = steps_per_epoch(len(split), batch_size)
        self._split, self._transform = split, transform or RandomResizedCrop(image_size)
        self._seed, self._batch_size, self._num_workers = seed, batch_size, num_workers
        self._rows = host_slice(batch_size, process_index, process_count)
        self._step = 0
        self._iterator: Any = None

    def __next__(self) -> Batch:
        if self._iterator is None:
            self._iterator = self._start()
        batch = _own(next(self._iterator))
        self._step += 1
        return batch

    def _start(self) -> Any:
        rows = _TrainRows(
            self._split,
            self._transform,
            seed=self._seed,
            batch_size=self._batch_size,
            rows=self._rows,
            first_step=self._step,
        )
        iterator = _grain_iterator(rows, self._rows.stop - self._rows.start, self._num_workers)
        # A forgotten close() must not leave worker processes behind at the end of the program.
        self._end = weakref.finalize(self, iterator.close)
        return iterator

    def get_state(self) -> dict[str, int]:
        """Where the next batch lies, and what that depends on: plain integers for a checkpoint."""
        epoch, step = divmod(self._step, self.steps_per_epoch)
        return {"epoch": epoch, "step": step, **self._identity()}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continues from a saved state, with any number of workers and hosts.

        Raises:
            ValueError: if the state belongs to other data, another batch size or seed.
        """
        saved = {key: int(state[key]) for key in self._identity()}
        if saved != self._identity():
            raise ValueError(f"state: expected {self._identity()}, got {saved}")
        self.close()
        self._step = int(state["epoch"]) * self.steps_per_epoch + int(state["step"])

    def _identity(self) -> dict[str, int]:
        return {"rows": len(self._split), "batch_size": self._batch_size, "seed": self._seed}

    def close(self) -> None:
        """Ends the worker processes; the next batch starts new ones."""
        if self._iterator is not None:
            self._iterator = None
            self._end()

    def __enter__(self) -> "TrainStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def eval_stream(
    split: ArraySplit | StreamSplit,
    *,
    image_size: int,
    batch_size: int,
    num_workers: int = 0,
    process_index: int = 0,
    process_count: int = 1,
    transform: EvalTransform | None = None,
) -> Iterator[Batch]:
    """All pictures of a split once, in fixed order; arguments and batches as in `TrainStream`.

    Every host yields equally many batches of one shape; rows whose mask is False are padding.

    Yields:
        Batches with image, label, index and mask.
    """
    rows = host_slice(batch_size, process_index, process_count)
    pictures = _EvalRows(split, transform or CentreCrop(image_size), batch_size, rows)
    iterator = _grain_iterator(pictures, rows.stop - rows.start, num_workers)
    try:
        yield from map(_own, iterator)
    finally:
        iterator.close()
