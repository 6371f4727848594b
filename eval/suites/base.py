"""What suites share: tasks, what they found, and the jitted judgement of a batch."""

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from eval import preprocessing
from eval.results import Cell, Row

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Split, Subject

# Bool [n] under the key of each cell, and under the names of other things noticed of each image.
Signs = Mapping[str, np.ndarray]
Flags = Callable[[Cell, Signs, Mapping[str, np.ndarray]], tuple[str, ...]]
Cells = tuple[Cell, ...]
Measure = Callable[["Batch", Cells], dict[str, jax.Array]]


def _no_flags(cell: Cell, signs: Signs, before: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    return ()


@dataclasses.dataclass(frozen=True)
class Task:
    """One pass over a split that fills some cells.

    Attributes:
        cells: what is measured.
        split: on which images.
        measure: of a batch and those cells that are not known yet: bool [B] under their keys, and
            under other names.
        flags: what a reader must be told of a row, given the task's signs and the right answers
            of the cells measured before.
        extra: more keys of the rows.
        transform: of streamed pictures, in place of resizing and cropping.
    """

    cells: Cells
    split: "Split"
    measure: Measure
    flags: Flags = _no_flags
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    transform: Any = None


@dataclasses.dataclass(frozen=True)
class Found:
    """What a suite's tasks found.

    Attributes:
        rows: of all tasks, also those of an earlier command.
        right: of each of their cells' keys, bool [n].
    """

    rows: tuple[Row, ...]
    right: Mapping[str, np.ndarray]


def no_summary(options: Any, found: Found) -> Iterable[Row]:
    """For suites whose rows say all."""
    return ()


class Judge:
    """Tells which images of a batch are named rightly, as they are and preprocessed.

    The network is compiled once for all suites, apart from what changes the images.

    Args:
        subject: the network.
        draws: passes whose probabilities are averaged, for random networks.
    """

    def __init__(self, subject: "Subject", draws: int) -> None:
        self._weights = subject.weights
        whole = subject.layout.whole

        def right(weights: Any, keys: jax.Array, images: jax.Array, label: jax.Array) -> jax.Array:
            def logits(key: jax.Array, images: jax.Array) -> jax.Array:
                return subject.logits(weights, key, images)

            return named_rightly(logits, keys, images, label, draws)

        self._right = jax.jit(right, out_shardings=whole)
        self._preprocess: dict[str | None, Any] = {
            name: jax.jit(preprocessing.build(name, subject)) for name in preprocessing.NAMES
        }

    def bare(self, keys: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
        """Bool [B] for images as they are."""
        return self._right(self._weights, keys, images, labels)

    def each(
        self, cells: Iterable[Cell], keys: jax.Array, images: jax.Array, labels: jax.Array
    ) -> dict[str, jax.Array]:
        """Bool [B] under the key of each cell, for the images as its `preprocess` makes them."""
        return {
            cell.key: self.bare(keys, self._preprocess[cell.preprocess](images), labels)
            for cell in cells
        }


def named_rightly(
    logits: Callable[[jax.Array, jax.Array], jax.Array],
    keys: jax.Array,
    images: jax.Array,
    labels: jax.Array,
    draws: int,
) -> jax.Array:
    """Bool [B]: whether the likeliest class, by the mean over draws of a network, is the label."""
    if draws == 1:
        return jnp.argmax(logits(keys[0], images), axis=-1) == labels
    every = jax.lax.map(
        lambda key: jax.nn.softmax(logits(key, images)), jax.random.split(keys[0], draws)
    )  # [draws, B, K]
    return jnp.argmax(every.mean(0), axis=-1) == labels


@jax.jit
def pixels(images: jax.Array) -> jax.Array:
    """Bytes as float32 in [0, 1]."""
    return images.astype(jnp.float32) / 255


def columns(subject: "Subject", options: "Options", suite: str, name: str, **keys: Any) -> Cells:
    """The cells of one measurement: one for each preprocessing that is asked for."""
    return tuple(
        Cell(suite, name, preprocess=one, sparsity=preprocessing.sparsity(one, subject), **keys)
        for one in dict.fromkeys(options.preprocess)
    )


def image_keys(seed: int, salt: str, index: jax.Array) -> jax.Array:
    """A key for every image, by its row: the same in any batch and on any device.

    Args:
        seed: of the evaluation.
        salt: what the randomness is for.
        index: int32 [B].

    Returns:
        Typed keys [B].
    """
    base = jax.random.fold_in(jax.random.key(seed), jnp.uint32(zlib.crc32(salt.encode())))
    return jax.vmap(lambda row: jax.random.fold_in(base, row))(index)
