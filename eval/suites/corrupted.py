"""`corruptions`: the common corruptions, made on the device or read from the published files."""

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import jax

from eval import corruptions
from eval.published import ALEXNET_ERRORS, Unchanged, mean_corruption_error, open_published
from eval.results import Cell, Row, mean
from eval.suites.base import (
    Cells,
    Found,
    Judge,
    Measure,
    Task,
    columns,
    image_keys,
    pixels,
)
from train.data.dataset import ArraySplit

if TYPE_CHECKING:
    from eval.options import Options
    from eval.subject import Batch, Subject

_SUITE = "corruptions"
_SEVERITIES = 5


def tasks(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    """One pass for every corruption and severity."""
    if options.published is not None:
        return _published(subject, options, judge)
    return _made_here(subject, options, judge)


def _made_here(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    constants = corruptions.constants_for(subject.dataset.image_shape[0])
    for name in options.corruptions:
        for severity in options.severities:
            cells = columns(subject, options, _SUITE, name, severity=severity)
            corrupt = jax.jit(
                functools.partial(
                    corruptions.corrupt, name=name, severity=severity, constants=constants
                )
            )
            extra = {"constants": constants, "source": "made here"}
            measure = _measure(options, judge, cells[0], corrupt)
            yield Task(cells, subject.dataset.test, measure, extra=extra)


def _published(subject: "Subject", options: "Options", judge: Judge) -> Iterable[Task]:
    assert options.published is not None
    dataset, size = subject.dataset, subject.dataset.image_shape[0]
    found = open_published(
        options.published,
        dataset_labels=dataset.test.labels if isinstance(dataset.test, ArraySplit) else None,
        class_names=None if isinstance(dataset.test, ArraySplit) else dataset.class_names,
    )
    extra = {"constants": corruptions.constants_for(size), "source": "published"}
    limit = options.limit or subject.config.limit_test  # as many as of the clean images
    for name in _chosen(options, found):
        for severity in options.severities:
            cells = columns(subject, options, _SUITE, name, severity=severity)
            split = found[name].split(severity, limit)
            if isinstance(split, ArraySplit) and split.images.shape[1:] != dataset.image_shape:
                raise ValueError(
                    f"{options.published}: expected pictures of {list(dataset.image_shape)}, as "
                    f"{dataset.name} has, got {list(split.images.shape[1:])}"
                )
            measure = _measure(options, judge, cells[0], lambda keys, images: images)
            yield Task(cells, split, measure, extra=extra, transform=Unchanged(size))


def _chosen(options: "Options", found: Iterable[str]) -> tuple[str, ...]:
    """The corruptions asked for; unless some are named, all that the files hold."""
    there = tuple(found)
    if options.corruptions == corruptions.NAMES:
        return there
    missing = [name for name in options.corruptions if name not in there]
    if missing:
        raise ValueError(
            f"--corruptions: {options.published} has no {', '.join(missing)}; it has {', '.join(there)}"
        )
    return options.corruptions


def _measure(
    options: "Options",
    judge: Judge,
    cell: Cell,
    corrupt: Callable[[jax.Array, jax.Array], jax.Array],
) -> Measure:
    # One noise for all columns, whichever of them are asked for, and for folders that an earlier
    # version began: this was its key of the images as they are.
    salt = json.dumps([_SUITE, cell.name, cell.severity, None, None, False, None])

    def measure(batch: "Batch", wanted: Cells) -> dict[str, jax.Array]:
        keys = image_keys(options.seed, salt, batch["index"])
        return judge.each(wanted, keys, corrupt(keys, pixels(batch["image"])), batch["label"])

    return measure


def summarise(options: "Options", found: Found) -> Iterable[Row]:
    """Means over severities, over corruptions, and the mCE where it is defined."""
    by_column: dict[str | None, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in found.rows:
        by_column[row.cell.preprocess][row.cell.name].append(row)
    for by_corruption in by_column.values():
        means = [
            mean(rows[0].cell._replace(severity=None), rows, extra=rows[0].extra)
            for rows in by_corruption.values()
            if len(rows) == _SEVERITIES
        ]
        if not means:
            continue
        yield from means
        cell = means[0].cell._replace(name="mean")
        yield mean(cell, means, extra={"corruptions": len(means), **means[0].extra})
        errors = {row.cell.name: 1 - row.value / 100 for row in means}
        # AlexNet's errors are those on ImageNet-C.
        if means[0].extra.get("constants") == "imagenet" and errors.keys() >= ALEXNET_ERRORS.keys():
            yield Row(cell, mean_corruption_error(errors), means[0].n, metric="mce")
