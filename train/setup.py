"""Puts the parts of a run together, from a configuration."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from train import methods, models, optimizer, state, step
from train.config import Config
from train.data.dataset import Dataset
from train.data.order import steps_per_epoch
from train.evaluation import Evaluator
from train.feed import Feed, open_feed
from train.sharding import Layout

# Pixels of other than three channels have no published statistics.
_PLAIN_MEAN, _PLAIN_STD = 0.5, 0.25
# Folded into the run's key for the noise of testing; steps of training never get there.
_TEST_NOISE = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the loop works with.

    Attributes:
        graph: the model's static part.
        feed: the data.
        update: the jitted update.
        evaluator: accuracy on the test set.
        initial: the state before the first step, on all devices.
        total_steps: of the training.
    """

    graph: nnx.GraphDef[models.Classifier]
    feed: Feed
    update: step.Update
    evaluator: Evaluator
    initial: state.TrainState
    total_steps: int


def build_model(config: Config, dataset: Dataset) -> models.Classifier:
    """The network with random weights, before any method's `wrap`."""
    assert config.model is not None
    name = config.model
    channels = dataset.image_shape[2]
    plain = channels != len(models.layers.IMAGENET_MEAN)

    def make() -> models.Classifier:
        return models.build(
            name,
            num_classes=dataset.num_classes,
            image_size=config.resize or dataset.image_shape[0],
            rngs=nnx.Rngs(config.seed),
            dtype=jnp.dtype(config.precision),
            patch_size=config.patch_size,
            stem=config.stem,
            mean=(_PLAIN_MEAN,) * channels if plain else None,
            std=(_PLAIN_STD,) * channels if plain else None,
        )

    # All weights in one compilation; one for each shape takes several times as long.
    graph = nnx.graphdef(nnx.eval_shape(make))
    return nnx.merge(graph, jax.jit(lambda: nnx.state(make()))())


def assemble(config: Config, dataset: Dataset, layout: Layout) -> Parts:
    """Builds model, method, optimiser, feed and the two jitted functions.

    Args:
        config: filled by the recipe.
        dataset: what to learn from.
        layout: where arrays live.
    """
    assert config.batch_size is not None and config.epochs is not None
    assert config.noise is not None
    layout.check_batch("--batch-size", config.batch_size)
    layout.check_batch("--eval-batch-size", config.eval_batch_size)
    epoch_steps = steps_per_epoch(len(dataset.train), config.batch_size)
    total_steps = config.epochs * epoch_steps
    method = methods.build(config, epoch_steps)
    model = method.wrap(build_model(config, dataset))
    if config.init_from is not None:
        models.load(model, config.init_from, allow_new_layers=True)
    graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)  # type: ignore[misc]
    feed = open_feed(config, dataset, method, layout)
    rule = optimizer.build(config, epoch_steps)
    spec = methods.Spec(len(dataset.train), dataset.num_classes, dataset.image_shape)
    initial = state.create(
        params,
        stats,
        opt_state=rule.init(params),
        method_state=method.init(spec),
        seed=config.seed,
        averaged=config.ema_decay > 0,
    )
    forward = step.Forward(graph, config.resize)
    update = step.make_update(
        forward=forward,
        method=method,
        optimizer=rule,
        augment=feed.augment,
        num_classes=dataset.num_classes,
        label_smoothing=config.label_smoothing,
        ema_decay=config.ema_decay,
    )
    evaluator = Evaluator(
        step.make_evaluate(forward=forward, method=method),
        feed,
        rows=len(dataset.test),
        noise=config.noise,
        key=layout.replicate(jax.random.fold_in(jax.random.key(config.seed), _TEST_NOISE)),
    )
    return Parts(graph, feed, update, evaluator, layout.replicate(initial), total_steps)
