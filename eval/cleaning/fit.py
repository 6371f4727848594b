"""`fit-peers`: the fixed strength of each peer with the best mean accuracy on training images."""

import functools
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from eval.bench_table import write_json
from eval.cleaning.columns import CLEAN, FITTING, SEED, fitting
from eval.cleaning.network import Network, in_memory
from eval.cleaning.options import FitOptions
from eval.cleaning.peers import PEERS, Pool
from eval.cleaning.preprocessings import NONE, Denoising, Preprocessing, one_ahead
from train.data.dataset import ArraySplit
from train.data.sources import open_source
from train.progress import Progress

_PACKAGES = ("scikit-image", "scipy", "PyWavelets")


class Batch(NamedTuple):
    """Training images under every column, float [B, H, W, C] in [0, 1], and their labels."""

    columns: dict[str, jax.Array]
    labels: np.ndarray


def run(options: FitOptions) -> Path:
    """Tries every setting of every peer, and writes the strengths whole or not at all."""
    network = Network(options, limit=1)  # no test image is looked at
    dataset = open_source(options.dataset, data_dir=options.data_dir)
    train = in_memory(dataset.train, options.dataset)
    count = min(options.limit, len(train))
    batches = list(last_batches(train, count, options.batch_size))
    candidates = [
        Denoising(name, setting) for name, peer in PEERS.items() for setting in peer.settings
    ]
    total = (1 + len(candidates)) * len(batches[0].columns) * count
    with Pool() as pool, Progress("fit-peers", total, unit="images") as progress:
        judge = functools.partial(score, network, batches, pool, progress)
        none, *scores = map(judge, [NONE, *candidates])
    content = {
        "how": how(options, network, train, count),
        "none": none,
        "peers": {
            name: _choose([s for c, s in zip(candidates, scores, strict=True) if c.name == name])
            for name in PEERS
        },
    }
    write_json(options.out, content)
    return options.out


def last_batches(train: ArraySplit, count: int, batch_size: int) -> Iterator[Batch]:
    """The last images of the split with the noise for fitting."""
    for start in range(len(train) - count, len(train), batch_size):
        rows = np.arange(start, min(start + batch_size, len(train)), dtype=np.int32)
        yield Batch(fitting(train.images[rows], rows), train.labels[rows])


def score(
    network: Network,
    batches: list[Batch],
    pool: Pool,
    progress: Progress,
    candidate: Preprocessing,
    label: str | None = None,
) -> dict[str, Any]:
    """Accuracy in per cent: the mean over the columns, and each. The label is for the progress line."""
    work = [(batch, column) for batch in batches for column in batch.columns]
    cleaned = one_ahead(
        functools.partial(candidate.start, pool, batch.columns[column]) for batch, column in work
    )
    right = dict.fromkeys(batches[0].columns, 0)
    for (batch, column), images in zip(work, cleaned, strict=True):
        right[column] += network.right_answers(images, batch.labels)
        progress.advance(len(batch.labels), label or candidate.definition)
    count = sum(len(batch.labels) for batch in batches)
    accuracy = {column: 100 * hits / count for column, hits in right.items()}
    mean = sum(accuracy.values()) / len(accuracy)
    strength = {"strength": dict(candidate.setting)} if isinstance(candidate, Denoising) else {}
    return {**strength, "score": round(mean, 3), "accuracy": accuracy}


def _choose(tried: list[dict[str, Any]]) -> dict[str, Any]:
    """The best score; of equals the weaker strength, which comes first."""
    best = max(tried, key=lambda one: one["score"])
    return {"chosen": best["strength"], "score": best["score"], "tried": tried}


def how(options: FitOptions, network: Network, train: ArraySplit, count: int) -> dict[str, Any]:
    """What a reader needs to know to repeat a fit."""
    return {
        "score": f"mean accuracy in per cent over {CLEAN} and all columns of noise",
        "images": f"the last {count} of {len(train)} training images of {options.dataset}",
        "noise": {name: list(strengths) for name, strengths in FITTING.items()},
        "seed": SEED,
        "model": options.model,
        "weights": network.subject.weights_file.name,
        "weights_digest": network.subject.weights_digest,
        "versions": {package: importlib.metadata.version(package) for package in _PACKAGES},
    }
