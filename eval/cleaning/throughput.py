"""Images per second of every preprocessing, measured in turn within one run."""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from eval.bench_table import machine, write_json
from eval.cleaning import columns
from eval.cleaning.peers import Pool
from eval.cleaning.preprocessings import NONE, Denoising, Preprocessing
from eval.suites.base import pixels
from eval.timing import one_call
from train.data.dataset import ArraySplit

THROUGHPUT = "throughput.json"
_ROUNDS = 3
_NOISE = ("gaussian_noise", 3)

Rates = Mapping[str, float | None]


def measure(
    shown: Mapping[str, Preprocessing], test: ArraySplit, count: int, peer_count: int
) -> dict[str, Any]:
    """Times every row on noisy test images, each on all cores.

    Args:
        shown: the rows, by name.
        test: the images; repeated if they are too few.
        count: images in a batch of ours.
        peer_count: images in a batch of the peers, which go image by image, a process for each core.

    Returns:
        The content of throughput.json. A row that does nothing has no rate.
    """
    rows = np.arange(count, dtype=np.int32) % len(test)
    noisy = columns.noisy(pixels(jnp.asarray(test.images[rows])), rows, *_NOISE)
    few = np.asarray(noisy)[np.arange(peer_count) % count]
    with Pool() as pool:
        tasks: dict[str, tuple[Callable[[], Any], int]] = {
            name: (functools.partial(_all, how, pool, few), peer_count)
            if isinstance(how, Denoising)
            else (functools.partial(_all, how, pool, noisy), count)
            for name, how in shown.items()
            if how != NONE
        }
        seconds = _best_in_turn({name: task for name, (task, _) in tasks.items()})
    height, width = test.images.shape[1:3]
    return {
        "how": (
            f"{height}x{width} pixels with {columns.column(*_NOISE)}; the best of {_ROUNDS} rounds, all rows in turn "
            f"in each, and each on all cores. Our smoothing: batches of {count}. Peers: batches of {peer_count}, image "
            "by image, a process for each core."
        ),
        "machine": machine(),
        "rows": {
            name: {
                "definition": how.definition,
                "images_per_second": tasks[name][1] / seconds[name] if name in tasks else None,
            }
            for name, how in shown.items()
        },
    }


def _all(how: Preprocessing, pool: Pool, images: Any) -> Any:
    """A batch, begun and waited for."""
    return how.start(pool, images)()


def _best_in_turn(tasks: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of each; the first call, which may compile, does not count."""
    rounds = [{name: one_call(task) for name, task in tasks.items()} for _ in range(1 + _ROUNDS)]
    return {name: min(times[name] for times in rounds[1:]) for name in tasks}


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Keeps the rates beside the chunks, for tables that are printed later."""
    write_json(folder / THROUGHPUT, dict(content))


def read(folder: Path, shown: Mapping[str, Preprocessing]) -> tuple[Rates, str]:
    """The rates of rows that were timed as they are now, and how they were measured."""
    path = folder / THROUGHPUT
    if not path.is_file():
        return {}, "not measured."
    content = json.loads(path.read_text(encoding="utf-8"))
    timed = content["rows"]
    rates = {
        name: timed[name]["images_per_second"]
        for name, how in shown.items()
        if timed.get(name, {}).get("definition") == how.definition
    }
    return rates, content["how"]
