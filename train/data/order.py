"""The order in which rows are seen: pure functions of (seed, epoch, step).

A run that starts again at any step sees what it would have seen, on any number of hosts.
`batch_size` is always that of all hosts together; each host takes its own slice of every batch.

Training drops the last, incomplete batch of an epoch. Each epoch has its own order, so no row is
left out for good, and all steps have one shape. Evaluation keeps the order of the split and fills
its last batch up with copies of row 0, whose mask is False.
"""

import numpy as np
from numpy.typing import NDArray

from train.data.dataset import IntArray


def epoch_permutation(seed: int, epoch: int, n: int) -> IntArray:
    """The order of one epoch: a permutation of 0 .. n-1.

    The raw stream of a NumPy bit generator is sorted, because NumPy promises that stream for all
    its versions, which it does not for `Generator.permutation`.

    Args:
        seed: of the run, not negative.
        epoch: counted from 0.
        n: how many rows.

    Returns:
        int32 [n].
    """
    keys = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(n)
    return np.argsort(keys, kind="stable").astype(np.int32)


def steps_per_epoch(n: int, batch_size: int) -> int:
    """Complete batches in an epoch.

    Raises:
        ValueError: if there is none.
    """
    if not 1 <= batch_size <= n:
        raise ValueError(f"batch_size: expected 1 to {n}, the training images, got {batch_size}")
    return n // batch_size


def train_indices(seed: int, epoch: int, n: int, batch_size: int) -> IntArray:
    """Rows of all complete batches of an epoch, int32 [steps, batch_size]."""
    steps = steps_per_epoch(n, batch_size)
    return epoch_permutation(seed, epoch, n)[: steps * batch_size].reshape(steps, batch_size)


def eval_indices(n: int, batch_size: int) -> tuple[IntArray, NDArray[np.bool_]]:
    """Rows in fixed order, and which of them count.

    Args:
        n: how many rows.
        batch_size: of all hosts together.

    Returns:
        int32 [steps, batch_size], padded with row 0; bool of the same shape, False for padding.
    """
    steps = -(-n // batch_size)
    rows = np.arange(steps * batch_size, dtype=np.int32).reshape(steps, batch_size)
    mask = rows < n
    return np.where(mask, rows, np.int32(0)), mask


def host_slice(batch_size: int, process_index: int, process_count: int) -> slice:
    """The part of every batch that one host handles."""
    if not 0 <= process_index < process_count:
        raise ValueError(f"expected 0 <= {process_index=} < {process_count=}")
    if batch_size < 1 or batch_size % process_count:
        raise ValueError(
            f"batch_size: expected a multiple of the {process_count} hosts, got {batch_size}"
        )
    share = batch_size // process_count
    return slice(process_index * share, (process_index + 1) * share)
