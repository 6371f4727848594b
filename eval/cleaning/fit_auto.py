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

# All pairs of the first two are tried, from gentle to strong, without a speckle rule and where there is no speckle, so
# that nothing that is chosen later has a part in it. Then, with the pair that is chosen, all outliers, from those that
# remove the most speckle to those that remove the least. The first that does as well as the best is chosen.
CONTRASTS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
STIFFNESSES = (0.5, 0.7, 1.0, 1.3, 1.7)
OUTLIERS = (3.0, 4.0, 5.0, 6.0, 8.0)
# As well: within so many points. A smaller gain on one network and size is not worth smoothing all others more, nor is
# one under a single kind of noise worth leaving spots where two kinds meet.
MARGIN = 0.5
# An image is left alone unless it looks noisier than this share of clean ones.
QUIET_SHARE = 0.99
_PAIR, _LEVELS = ("contrast", "stiffness"), ("quiet", "quiet_grey")
_LUMINANCE = (0.299, 0.587, 0.114)
_SPECKLE = "impulse_noise"


def run(options: AutoFitOptions) -> Path:
    """Tries every pair of contrast and stiffness, then every outlier, and writes the scores whole or not at all."""
    network = Network(options, limit=1)  # no test image is looked at
    train = in_memory(
        open_source(options.dataset, data_dir=options.data_dir).train, options.dataset
    )
    count = min(options.limit, len(train))
    batches = list(last_batches(train, count, options.batch_size))
    smooth_noise = [_without_speckle(batch) for batch in batches]
    quiet, quiet_grey = quiet_levels([batch.columns[CLEAN] for batch in batches])
    pairs = [
        isvs.AutoLevel(contrast, stiffness, quiet, quiet_grey, speckle=None)
        for stiffness in STIFFNESSES
        for contrast in CONTRASTS
    ]
    few, all_columns = len(smooth_noise[0].columns), len(batches[0].columns)
    total = (few * (1 + len(pairs)) + all_columns * (1 + len(OUTLIERS))) * count
    with Pool() as pool, Progress("fit-auto", total, unit="images") as progress:

        def judge(batches: list[Batch], policies: Sequence[Any]) -> list[dict[str, Any]]:
            judged = functools.partial(score, network, batches, pool, progress)
            return [judged(policy) for policy in policies]

        none, *scores = judge(smooth_noise, [NONE, *map(Smoothing, pairs)])
        pair = pairs[first_alike(scores)]
        policies = [
            dataclasses.replace(pair, speckle=isvs.Speckle(), outlier=outlier)
            for outlier in OUTLIERS
        ]
        none_of_all, *of_all = judge(batches, [NONE, *map(Smoothing, policies)])
    content = {
        "how": {**how(options, network, train, count), "margin": MARGIN},
        "chosen": _constants(policies[first_alike(of_all)], *_PAIR, *_LEVELS, "outlier"),
        "pairs": {"none": none, "tried": _tried(pairs, scores, *_PAIR)},
        "outliers": {"none": none_of_all, "tried": _tried(policies, of_all, *_PAIR, "outlier")},
    }
    write_json(options.out, content)
    return options.out


def first_alike(scores: Sequence[dict[str, Any]]) -> int:
    """The first whose score is within the margin of the best."""
    least = max(found["score"] for found in scores) - MARGIN
    return next(index for index, found in enumerate(scores) if found["score"] >= least)


def _tried(
    policies: Sequence[isvs.AutoLevel], scores: Sequence[Any], *names: str
) -> list[dict[str, Any]]:
    return [_constants(one, *names) | found for one, found in zip(policies, scores, strict=True)]


def _without_speckle(batch: Batch) -> Batch:
    kept = {name: v for name, v in batch.columns.items() if not name.startswith(_SPECKLE)}
    return batch._replace(columns=kept)


def quiet_levels(batches: Sequence[jax.Array]) -> tuple[float, float]:
    """The noise level that `QUIET_SHARE` of clean images stay below, in colour and in grey."""
    colour = [isvs.remove_speckle(images) for images in batches]
    grey = [images @ jnp.asarray(_LUMINANCE)[:, None] for images in colour]
    return _quiet(colour), _quiet(grey)


def _quiet(batches: Sequence[jax.Array]) -> float:
    levels = np.concatenate([isvs.noise_level(images) for images in batches])
    return round(float(np.quantile(levels, QUIET_SHARE)), 3)


def _constants(policy: isvs.AutoLevel, *names: str) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in names}
