"""`fit-auto`: the constants of `isvs.AutoLevel`, from training images with noise that the benchmark does not have."""

import dataclasses
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

# In turn: all pairs of the first two, from gentle to strong; then, with the pair that is chosen, how much stiffer
# colour is. Both without a speckle rule and where there is no speckle, so that nothing that is chosen later has a part
# in it. Then all outliers, from those that remove the most speckle to those that remove the least. Each time the first
# is chosen that does as well as the best.
CONTRASTS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5)
STIFFNESSES = (0.5, 0.7, 1.0, 1.3, 1.7)
COLOURS = (1.0, 2.0, 4.0, 8.0)
OUTLIERS = (3.0, 4.0, 5.0, 6.0, 8.0)
# As well: within so many points. A smaller gain on one network and size is not worth smoothing all others more, nor is
# one under a single kind of noise worth leaving spots where two kinds meet.
MARGIN = 0.5
# An image is left alone unless it looks noisier than this share of clean ones.
QUIET_SHARE = 0.99
FITTED = ("contrast", "stiffness", "colour", "quiet", "quiet_grey", "outlier")
_LUMINANCE = (0.299, 0.587, 0.114)
_SPECKLE = "impulse_noise"


def run(options: AutoFitOptions) -> Path:
    """Tries what there is to try, and writes the scores whole or not at all."""
    network = Network(options, limit=1)  # no test image is looked at
    train = in_memory(
        open_source(options.dataset, data_dir=options.data_dir).train, options.dataset
    )
    if train.images.shape[-1] != len(_LUMINANCE):
        raise ValueError(
            f"--dataset: expected colour images, got {train.images.shape[-1]} channel(s)"
        )
    count = min(options.limit, len(train))
    batches = list(last_batches(train, count, options.batch_size))
    smooth_noise = [_without_speckle(batch) for batch in batches]
    few, all_columns = len(smooth_noise[0].columns), len(batches[0].columns)
    tries = len(CONTRASTS) * len(STIFFNESSES) + len(COLOURS)
    total = (few * (1 + tries) + all_columns * (1 + len(OUTLIERS))) * count
    content: dict[str, Any] = {"how": {**how(options, network, train, count), "margin": MARGIN}}
    with Pool() as pool, Progress("fit-auto", total, unit="images") as progress:

        def choose(batches: list[Batch], policies: list[isvs.AutoLevel], *names: str) -> Any:
            """The policy to go on with, and the scores of all."""
            tried = []
            for policy in policies:
                constants = {name: getattr(policy, name) for name in names}
                label = ", ".join(f"{name} {value:g}" for name, value in constants.items())
                found = score(network, batches, pool, progress, Smoothing(policy), label)
                tried.append(constants | found)
            return policies[first_alike(tried)], tried

        none, none_of_all = (
            score(network, columns, pool, progress, NONE, "as they are")
            for columns in (smooth_noise, batches)
        )
        quiet, quiet_grey = quiet_levels([batch.columns[CLEAN] for batch in batches])
        start = isvs.AutoLevel(quiet=quiet, quiet_grey=quiet_grey, colour=1.0, speckle=None)
        pairs = [
            dataclasses.replace(start, contrast=contrast, stiffness=stiffness)
            for stiffness in STIFFNESSES
            for contrast in CONTRASTS
        ]
        best, of_pairs = choose(smooth_noise, pairs, "contrast", "stiffness")
        colours = [dataclasses.replace(best, colour=colour) for colour in COLOURS]
        best, of_colours = choose(smooth_noise, colours, "colour")
        best = dataclasses.replace(best, speckle=isvs.Speckle())
        outliers = [dataclasses.replace(best, outlier=outlier) for outlier in OUTLIERS]
        best, of_outliers = choose(batches, outliers, "outlier")
    content["chosen"] = {name: getattr(best, name) for name in FITTED}
    content["without_speckle"] = {"none": none, "pairs": of_pairs, "colours": of_colours}
    content["with_speckle"] = {"none": none_of_all, "outliers": of_outliers}
    write_json(options.out, content)
    return options.out


def first_alike(scores: Sequence[dict[str, Any]]) -> int:
    """The first whose score is within the margin of the best."""
    least = max(found["score"] for found in scores) - MARGIN
    return next(index for index, found in enumerate(scores) if found["score"] >= least)


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
