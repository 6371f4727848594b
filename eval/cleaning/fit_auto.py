"""`fit-auto`: the constants of `isvs.AutoLevel`, from training images with noise that the benchmark does not have."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isvs
from eval.bench_table import write_json
from eval.cleaning.columns import CLEAN
from eval.cleaning.fit import Batch, how, last_batches, score
from eval.cleaning.network import Network, in_memory
from eval.cleaning.options import AutoFitOptions
from eval.cleaning.peers import Pool
from eval.cleaning.preprocessings import NONE, Smoothing
from train.data.sources import open_source
from train.progress import Progress

# All pairs of these are tried.
CONTRASTS = (0.9, 1.0, 1.1, 1.2, 1.35)
STIFFNESSES = (0.8, 1.0, 1.3, 1.7, 2.2)
# An image is left alone unless it looks noisier than this share of clean ones.
QUIET_SHARE = 0.99
_LUMINANCE = (0.299, 0.587, 0.114)
# Speckle is removed by its own rule: these columns would tell nothing apart.
_LEFT_OUT = "impulse_noise"


def run(options: AutoFitOptions) -> Path:
    """Tries every pair of contrast and stiffness, and writes the scores whole or not at all."""
    network = Network(options, limit=1)  # no test image is looked at
    train = in_memory(
        open_source(options.dataset, data_dir=options.data_dir).train, options.dataset
    )
    count = min(options.limit, len(train))
    batches = [_fitted(batch) for batch in last_batches(train, count, options.batch_size)]
    quiet, quiet_grey = quiet_levels([batch.columns[CLEAN] for batch in batches])
    tried = [
        isvs.AutoLevel(contrast, stiffness, quiet, quiet_grey)
        for contrast in CONTRASTS
        for stiffness in STIFFNESSES
    ]
    total = (1 + len(tried)) * len(batches[0].columns) * count
    with Pool() as pool, Progress("fit-auto", total, unit="images") as progress:
        judge = functools.partial(score, network, batches, pool, progress)
        none, *scores = map(judge, [NONE, *map(Smoothing, tried)])
    best = max(range(len(tried)), key=lambda index: scores[index]["score"])
    content = {
        "how": {**how(options, network, train, count), "columns": list(batches[0].columns)},
        "none": none,
        "chosen": _constants(tried[best]),
        "tried": [_constants(one) | found for one, found in zip(tried, scores, strict=True)],
    }
    write_json(options.out, content)
    return options.out


def _fitted(batch: Batch) -> Batch:
    kept = {name: v for name, v in batch.columns.items() if not name.startswith(_LEFT_OUT)}
    return batch._replace(columns=kept)


def quiet_levels(batches: Sequence[jax.Array]) -> tuple[float, float]:
    """The noise level that `QUIET_SHARE` of clean images stay below, in colour and in grey."""
    colour = [isvs.remove_speckle(images) for images in batches]
    grey = [images @ jnp.asarray(_LUMINANCE)[:, None] for images in colour]
    return _quiet(colour), _quiet(grey)


def _quiet(batches: Sequence[jax.Array]) -> float:
    levels = np.concatenate([isvs.noise_level(images) for images in batches])
    return round(float(np.quantile(levels, QUIET_SHARE)), 3)


def _constants(policy: isvs.AutoLevel) -> dict[str, Any]:
    fields = dataclasses.asdict(policy)
    return {name: fields[name] for name in ("contrast", "stiffness", "quiet", "quiet_grey")}
