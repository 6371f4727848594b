"""Checkpoints by Orbax: written in the background, complete or absent, verified when read.

A checkpoint is a flat dictionary of arrays, named after their places in the state, with a checksum
of all their bits. Orbax gives a folder its final name when all of it is written, so a crash leaves
no half checkpoint; the checksum finds what goes wrong later, on the disk.
"""

import logging
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

# Orbax reports every phase of every save as a warning-worthy event; failures raise anyway.
logging.getLogger("absl").setLevel(logging.ERROR)

_KEPT = 2  # the latest, and the one before in case it is damaged


class Checkpoints:
    """The latest states and the best weights of a run.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        root = folder.resolve() / "checkpoints"
        self._latest = _manager(root / "latest", max_to_keep=_KEPT)
        self._best = _manager(
            root / "best",
            max_to_keep=1,
            best_fn=lambda metrics: metrics["accuracy"],
            best_mode="max",
        )

    @property
    def steps(self) -> list[int]:
        """Steps of which there is a state, in order."""
        return sorted(self._latest.all_steps())

    def save(self, step: int, state: Any) -> None:
        """Saves a state; returns when the arrays are copied, before they are written."""
        if step in self._latest.all_steps():
            return
        arrays = _snapshot(state)
        self._latest.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(arrays)))

    def save_best(self, step: int, weights: Any, accuracy: float) -> None:
        """Saves weights if no better ones are there."""
        if step in self._best.all_steps() or accuracy <= self.best_accuracy:
            return
        self._best.save(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(_snapshot(weights))),
            metrics={"accuracy": accuracy},
        )

    @property
    def best_accuracy(self) -> float:
        """Of the best weights, -1 if there are none yet."""
        self._best.wait_until_finished()
        step = self._best.best_step()
        if step is None:
            return -1.0
        return float((self._best.metrics(step) or {}).get("accuracy", -1.0))

    def restore(self, like: Any) -> Any | None:
        """The latest state that is sound; damaged ones are reported and removed.

        Args:
            like: a state of the same shapes, placed where the restored one shall be.

        Returns:
            The state, None if there is none.
        """
        return _restore(self._latest, like)

    def restore_best(self, like: Any) -> Any | None:
        """The best weights, as `restore`."""
        return _restore(self._best, like)

    def wait(self) -> None:
        """Returns when everything is on disk."""
        self._latest.wait_until_finished()
        self._best.wait_until_finished()

    def close(self) -> None:
        """Waits, and ends the background threads."""
        self._latest.close()
        self._best.close()


def _manager(folder: Path, **options: Any) -> ocp.CheckpointManager:
    folder.mkdir(parents=True, exist_ok=True)
    return ocp.CheckpointManager(
        folder,
        options=ocp.CheckpointManagerOptions(
            cleanup_tmp_directories=True,
            enable_async_checkpointing=True,
            # Both managers may save the same step at the same time; hosts must not mix them up.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                barrier_sync_key_prefix=folder.name
            ),
            **options,
        ),
    )


def _restore(manager: ocp.CheckpointManager, like: Any) -> Any | None:
    manager.wait_until_finished()
    wanted = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding),
        _snapshot(like),
    )
    for step in sorted(manager.all_steps(), reverse=True):
        try:
            arrays = manager.restore(
                step, args=ocp.args.Composite(state=ocp.args.StandardRestore(wanted))
            )["state"]
            checksum = arrays.pop(_CHECKSUM)
            if int(checksum) != int(_checksum(arrays)):
                raise ValueError("its checksum does not hold")
        # What a damaged file raises depends on the byte: there is no narrower list.
        except Exception as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error) else repr(error)
            print(
                f"warning: the checkpoint of step {step} is damaged ({reason}); it is removed",
                file=sys.stderr,
                flush=True,
            )
            manager.delete(step)
            continue
        return _unflatten(like, arrays)
    return None


_CHECKSUM = "checksum"


def _flatten(tree: Any) -> dict[str, jax.Array]:
    """Arrays by place; random keys as their bits, which are all that can be stored."""
    named = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        named[name] = jax.random.key_data(leaf) if is_key else leaf
    return named


def _unflatten(like: Any, arrays: dict[str, jax.Array]) -> Any:
    leaves = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(like):
        array = arrays[jax.tree_util.keystr(path, simple=True, separator="/")]
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf))
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _snapshot(tree: Any) -> dict[str, jax.Array]:
    """The arrays to write, with their checksum.

    On a CPU an array and its copy on the host are the same memory, which the next update gives
    away; so they are copied first.
    """
    arrays = _flatten(tree)
    arrays[_CHECKSUM] = _checksum(arrays)
    return jax.jit(_copies)(arrays) if jax.default_backend() == "cpu" else arrays


def _copies(arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return jax.tree.map(jnp.copy, arrays)


@jax.jit
def _checksum(arrays: dict[str, jax.Array]) -> jax.Array:
    """A sum over all bits, weighted by place, in integers: any order of adding gives the same."""
    total = jnp.zeros((), jnp.uint32)
    for number, name in enumerate(sorted(arrays)):
        array = arrays[name]
        bits = jax.lax.bitcast_convert_type(array, _UNSIGNED[np.dtype(array.dtype).itemsize])
        flat = bits.reshape(-1).astype(jnp.uint32)
        weights = 2 * jax.lax.iota(jnp.uint32, flat.size) + jnp.uint32(1)
        total = total * jnp.uint32(31) + jnp.uint32(number) + jnp.sum(flat * weights)
    return total


_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}
