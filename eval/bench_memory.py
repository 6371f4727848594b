"""Peak memory of `encode`, as a multiple of the batch: as planned by the compiler, and as the system sees it.

``python -m eval.bench_memory COUNT SIDE`` measures in a process of its own and prints one number of bytes.
"""

import ctypes
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np

import isvs
from eval.bench_table import Row, at_most
from eval.photographs import photographs
from eval.timing import Measured

_TARGET = at_most(12)
_ROOT = pathlib.Path(__file__).parents[1]
_STATUS = pathlib.Path("/proc/self/status")
_CLEAR = pathlib.Path("/proc/self/clear_refs")


def rows(count: int, side: int) -> list[Row]:
    """Rows for `count` colour images; the second one, measured in a process of its own, needs Linux."""
    images = jax.ShapeDtypeStruct((count, side, side, 3), np.float32)
    batch_bytes = count * side * side * 3 * 4
    plan = jax.jit(isvs.encode).lower(images).compile().memory_analysis()
    if plan is None:
        raise RuntimeError(
            f"the {jax.default_backend()} backend does not say how much memory it plans"
        )
    parts = {
        "arguments": plan.argument_size_in_bytes,
        "results": plan.output_size_in_bytes,
        "temporary": plan.temp_size_in_bytes,
    }
    shares = ", ".join(f"{name} {size / batch_bytes:.2f}" for name, size in parts.items())
    of_batch = f"{count} images {side}x{side}, float32, {batch_bytes / 2**20:.1f} MiB."
    planned = Measured(sum(parts.values()) / batch_bytes)
    what = "encode's peak memory, planned by the compiler"
    result = [Row(what, "x batch", planned, target=_TARGET, note=f"{of_batch} {shares}.")]
    if _CLEAR.exists():
        result.append(_resident_row(count, side, batch_bytes, of_batch))
    return result


def _resident_row(count: int, side: int, batch_bytes: int, of_batch: str) -> Row:
    command = [sys.executable, "-m", "eval.bench_memory", str(count), str(side)]
    # Every larger block gets its own mapping, so that memory left over from compiling hides nothing.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=_ROOT
    )
    growth = Measured(int(done.stdout) / batch_bytes)
    note = f"{of_batch} What a process grows by, from before the batch is put on the device."
    return Row("encode's peak memory, resident", "x batch", growth, target=_TARGET, note=note)


def resident_growth(count: int, side: int) -> int:
    """Bytes by which the process's resident memory rises for one call of `encode`, argument and results included."""
    images = photographs(count, side)
    encode = jax.jit(isvs.encode).lower(images).compile()
    # A run of another program starts what is started once, such as threads.
    jax.block_until_ready(jax.numpy.zeros(1) + 1)
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text("5")  # sets the high-water mark back to what is resident now
    before = _status_bytes("VmHWM")
    jax.block_until_ready(encode(jax.device_put(images)))
    return _status_bytes("VmHWM") - before


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{_STATUS} has no {field}")


if __name__ == "__main__":
    print(resident_growth(int(sys.argv[1]), int(sys.argv[2])))
