"""The network that judges cleaned images, each batch split over all devices."""

import jax
import jax.numpy as jnp
import numpy as np

from eval.cleaning.options import NetworkOptions
from eval.options import Options
from eval.subject import Subject, open_subject
from train.data.dataset import ArraySplit, StreamSplit


class Network:
    """Counts right answers; compiled once for each size of a batch.

    Args:
        options: which network.
        limit: of the test images.

    Attributes:
        subject: the network with its weights and test images.
    """

    def __init__(self, options: NetworkOptions, limit: int | None = None) -> None:
        self.subject: Subject = open_subject(
            Options(
                weights=options.weights,
                model=options.model,
                dataset=options.dataset,
                data_dir=options.data_dir,
                limit=limit,
            )
        )
        key = jax.random.key(0)  # published weights have no use for chance

        @jax.jit
        def count(weights: object, images: jax.Array, labels: jax.Array) -> jax.Array:
            answers = jnp.argmax(self.subject.logits(weights, key, images), axis=-1)  # type: ignore[arg-type]
            return jnp.sum(answers == labels)

        self._count = count

    def place(self, images: jax.Array | np.ndarray) -> jax.Array:
        """A batch, split over the devices; on each of them as a whole where it cannot be split evenly."""
        layout = self.subject.layout
        even = len(images) % layout.mesh.size == 0
        return jax.device_put(images, layout.split if even else layout.whole)

    def right_answers(self, images: jax.Array | np.ndarray, labels: np.ndarray) -> int:
        """How many of a batch of images in [0, 1] are named rightly."""
        return int(self._count(self.subject.weights, self.place(images), self.place(labels)))


def in_memory(split: ArraySplit | StreamSplit, dataset: str) -> ArraySplit:
    """The split, or an error if it is streamed."""
    if not isinstance(split, ArraySplit):
        raise ValueError(f"--dataset: expected one that is held in memory, got {dataset}")
    return split
