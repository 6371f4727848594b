"""Where arrays live: one mesh over all devices of all hosts, batches split, everything else whole."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from train.config import Config

_AXIS = "batch"


def start_processes(config: Config) -> None:
    """Joins this process to the others, if there are to be several.

    Args:
        config: `coordinator` is "auto" where the cluster tells, HOST:PORT where it does not.
    """
    if config.coordinator is None:
        return
    if config.coordinator == "auto":
        jax.distributed.initialize()
        return
    jax.distributed.initialize(config.coordinator, config.num_processes, config.process_id)


class Layout:
    """The mesh, and arrays put onto it.

    Axes are Auto: the compiler splits the work, and the result is that of one device up to the
    order of its sums. Batch normalisation sees the whole batch, on however many devices it lies.
    """

    def __init__(self) -> None:
        self.mesh: Mesh = jax.make_mesh(
            (jax.device_count(),), (_AXIS,), axis_types=(AxisType.Auto,)
        )
        self.split = NamedSharding(self.mesh, PartitionSpec(_AXIS))
        self.whole = NamedSharding(self.mesh, PartitionSpec())

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return jax.process_index() == 0

    def check_batch(self, option: str, batch_size: int) -> None:
        """Raises unless a batch can be split evenly over all devices."""
        devices = self.mesh.size
        if batch_size % devices:
            raise ValueError(
                f"{option}: expected a multiple of the {devices} devices, got {batch_size}"
            )

    def shard(self, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        """A global batch from each process's own rows of it."""
        return {
            name: jax.make_array_from_process_local_data(self.split, rows)
            for name, rows in batch.items()
        }

    def replicate(self, tree: Any) -> Any:
        """A copy of every array on every device; all processes hold the same values."""

        def place(array: Any) -> jax.Array:
            if isinstance(array, jax.Array) and jax.dtypes.issubdtype(
                array.dtype, jax.dtypes.prng_key
            ):
                data = place(jax.random.key_data(array))
                return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
            host = np.asarray(array)
            return jax.make_array_from_callback(host.shape, self.whole, lambda rows: host[rows])

        return jax.tree.map(place, tree)


def wait_for_all(name: str) -> None:
    """Returns when every process has come to this place."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)
