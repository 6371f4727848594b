"""What is evaluated: a network with its weights, how its test images are prepared, and on what."""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

import isvs
from eval.options import Options
from train import methods, models, presets, run_folder
from train.config import Config
from train.data.dataset import ArraySplit, Dataset, Record, StreamSplit, first, hash_text, spread
from train.data.order import eval_indices
from train.data.pipeline import eval_stream
from train.data.sources import open_source
from train.setup import build_model
from train.sharding import Layout
from train.step import Forward

Batch = dict[str, jax.Array]
Split = ArraySplit | StreamSplit
Weights = tuple[nnx.State, nnx.State]

_DRAWS = 8  # of a random network, unless told otherwise


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Some rows of a streamed split, as a split."""

    split: StreamSplit
    rows: tuple[int, ...]

    @property
    def fingerprint(self) -> str:
        """Of the split and the rows."""
        return hash_text((self.split.fingerprint, *map(str, self.rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Record:
        return {**self.split[self.rows[index]], "index": index}


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A network under test.

    Attributes:
        name: of the run, or of the weights.
        config: of the training, or one made up for bare weights.
        dataset: whose test split is used.
        forward: the network as a function of its weights; `forward.graph` is its static part.
        weights: parameters and running averages, on all devices.
        method: how it was trained; its `preprocess` is the one that is called `paper`.
        layout: where arrays live.
        weights_file: where the weights came from.
        weights_digest: hash of that file.
    """

    name: str
    config: Config
    dataset: Dataset
    forward: Forward
    weights: Weights
    method: methods.Method
    layout: Layout
    weights_file: Path
    weights_digest: str

    @property
    def sparsity(self) -> float | None:
        """The level at which the method smooths test images; None where it does not smooth."""
        return self.method.sparsity if self.method.has_level else None

    @property
    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the pixels, by channel, as the network normalises them."""
        model = nnx.merge(self.forward.graph, *self.weights, copy=True)
        return np.asarray(model.mean, np.float32), np.asarray(model.std, np.float32)

    def logits(self, weights: Weights, key: jax.Array, images: jax.Array) -> jax.Array:
        """The bare network, in evaluation mode: [B, H, W, C] -> [B, K]."""
        params, stats = weights
        return self.forward(params, stats, images, train=False, key=key)[0]

    def defend(self, images: jax.Array) -> jax.Array:
        """What the method makes of test images: smoothed, or blurred for blur models."""
        return self.method.preprocess({"image": images})

    def scale_space(self, images: jax.Array) -> isvs.ScaleSpace:
        """Every level of what `defend` does to images; where it has levels."""
        return self.method.scale_space(images)

    def defend_at(self, space: isvs.ScaleSpace, level: float) -> jax.Array:
        """What `defend` would make of the images at another level of their `scale_space`."""
        return self.method.at(space, level)

    def draws(self, options: Options) -> int:
        """Passes to average over; one is enough for networks without chance."""
        return options.draws or (_DRAWS if self.method.random else 1)

    def limited(self, limit: int) -> Split:
        """So many of the test images, classes mixed."""
        test = self.dataset.test
        if isinstance(test, ArraySplit):
            return first(test, limit)
        return test if limit >= len(test) else _Rows(test, tuple(spread(len(test), limit).tolist()))

    def batches(
        self, split: Split, batch_size: int, num_workers: int, transform: Any = None
    ) -> Iterator[Batch]:
        """A split once, in order, over all devices; rows whose mask is False are padding."""
        if isinstance(split, ArraySplit):
            for rows, mask in zip(*eval_indices(len(split), batch_size), strict=True):
                yield self.layout.shard(
                    {
                        "image": split.images[rows],
                        "label": split.labels[rows],
                        "index": rows,
                        "mask": mask,
                    }
                )
            return
        stream = eval_stream(
            split,
            image_size=self.dataset.image_shape[0],
            batch_size=batch_size,
            num_workers=num_workers,
            transform=transform,
        )
        yield from map(self.layout.shard, stream)


def open_subject(options: Options) -> Subject:
    """Loads what the options name.

    Raises:
        ValueError: for weights that do not fit the model or the number of classes, a run that is
            not finished, or options that contradict each other.
        FileNotFoundError: for files that are not there.
    """
    config, weights_file = _from_run(options) if options.run else _from_weights(options)
    if not weights_file.is_file():
        raise FileNotFoundError(f"{weights_file}: no such file")
    dataset = open_source(
        config.dataset,
        data_dir=config.data_dir,
        seed=config.seed,
        limit_train=1,  # it is not looked at
        limit_test=options.limit or config.limit_test,
        image_size=config.image_size,
    )
    layout = Layout()
    layout.check_batch("--batch-size", options.batch_size)
    method = methods.build(config, steps_per_epoch=1)
    model = method.wrap(build_model(dataclasses.replace(config, init_from=None), dataset))
    models.load(model, weights_file, allow_new_head=False)
    graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)  # type: ignore[misc]
    return Subject(
        name=(options.run or weights_file).absolute().name.removesuffix(".safetensors"),
        config=config,
        dataset=dataset,
        forward=Forward(graph, config.resize),
        weights=layout.replicate((params, stats)),
        method=method,
        layout=layout,
        weights_file=weights_file,
        weights_digest=hashlib.sha256(weights_file.read_bytes()).hexdigest(),
    )


def _from_run(options: Options) -> tuple[Config, Path]:
    assert options.run is not None
    path = options.run / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{options.run}: not the folder of a run, it has no config.json")
    config = Config.from_json(path.read_text(encoding="utf-8"), str(path))
    weights = options.run / run_folder.WEIGHTS
    if not weights.is_file():
        raise FileNotFoundError(
            f"{options.run}: the training is not finished, there is no {run_folder.WEIGHTS}; "
            "repeat its command to continue it"
        )
    changed: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("dataset", "data_dir", "sparsity", "precision")
        if getattr(options, name) is not None
    }
    if config.sparsity_from is not None and options.sparsity is not None:
        changed["sparsity_from"] = min(config.sparsity_from, options.sparsity)
    return dataclasses.replace(config, **changed), weights


def _from_weights(options: Options) -> tuple[Config, Path]:
    assert options.weights is not None and options.dataset is not None
    config = Config(
        dataset=options.dataset,
        data_dir=options.data_dir,
        model=options.model,
        method=options.method or "vanilla",
        sparsity=options.sparsity,
        image_size=options.image_size,
        resize=options.resize,
        stem=options.stem,
        patch_size=options.patch_size,
        precision=options.precision or "float32",
        limit_test=options.limit,
    )
    limit = options.limit
    # A recipe's limits are for training; weights are tested on all there is.
    return dataclasses.replace(presets.fill(config), limit_test=limit), options.weights
