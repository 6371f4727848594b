"""The update and the evaluation: pure, jitted, and without a word about any method."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from train import models
from train.methods.base import Batch, Method, Views
from train.state import TrainState

Metrics = dict[str, jax.Array]
Augment = Callable[[jax.Array, jax.Array], jax.Array]
Update = Callable[[TrainState, Batch, Batch], tuple[TrainState, Metrics]]

_CODE_NAMES = ("down", "right")
# Folded into the key of testing for random networks; rows of a test set never get there.
_NETWORK = 2**31 - 1


class Evaluate(Protocol):
    """Counts the right answers in a batch."""

    def __call__(
        self,
        weights: Any,
        resident: Batch,
        batch: Batch,
        key: jax.Array,
        *,
        smoothed: bool,
        noise: float,
    ) -> jax.Array:
        """See `make_evaluate`."""


class Forward(NamedTuple):
    """A model as a function of its weights: resize, normalise, network.

    Attributes:
        graph: the model's static part.
        resize: side to which images are brought first, None to leave them.
    """

    graph: nnx.GraphDef[models.Classifier]
    resize: int | None

    def __call__(
        self,
        params: nnx.State,
        stats: nnx.State,
        images: jax.Array,
        *,
        train: bool,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, nnx.State]:
        """Logits [B, K], and the new running averages; `key` is what a random network draws from."""
        if self.resize is not None:
            batch, _, _, channels = images.shape
            shape = (batch, self.resize, self.resize, channels)
            images = jax.image.resize(images, shape, "bilinear")
        logits, _, stats = models.apply(self.graph, params, stats, images, train=train, key=key)
        return logits, stats


def gather(resident: Batch, batch: Batch) -> dict[str, jax.Array]:
    """A batch with float images: rows of the resident set by index, or what was streamed.

    Args:
        resident: `image`, `label` and perhaps codes of a whole set; empty for streamed sets.
        batch: `index` [B] and `mask` [B]; for streamed sets all the rest too.
    """
    rows = {
        name: values.at[batch["index"]].get(mode="promise_in_bounds")
        for name, values in resident.items()
    }
    rows = {**batch, **rows}
    return {**rows, "image": rows["image"].astype(jnp.float32) / 255}


def make_update(
    *,
    forward: Forward,
    method: Method,
    optimizer: optax.GradientTransformation,
    augment: Augment,
    num_classes: int,
    label_smoothing: float,
    ema_decay: float,
) -> Update:
    """The jitted update; the old state's memory is given to the new one.

    Args:
        forward: the model.
        method: its hooks are all that is specific to a method.
        optimizer: of the parameters.
        augment: crop and flip, of a key and images.
        num_classes: for the targets.
        label_smoothing: share of the target spread over all classes.
        ema_decay: of the slow averages, where the state has them.

    Returns:
        `update(state, resident, batch) -> (state, metrics)`, see `gather`.
    """

    def update(state: TrainState, resident: Batch, batch: Batch) -> tuple[TrainState, Metrics]:
        keys = jax.random.split(jax.random.fold_in(state.key, state.step), 4)
        rows = gather(resident, batch)
        one_hot = jax.nn.one_hot(rows["label"], num_classes, dtype=jnp.float32)
        rows["target"] = optax.smooth_labels(one_hot, label_smoothing)

        def predict(key: jax.Array, images: jax.Array) -> jax.Array:
            return forward(state.params, state.stats, images, train=False, key=key)[0]

        images, method_state = method.view(state.method, keys[0], state.step, rows, predict)
        images = augment(keys[1], images)
        views = method.views(keys[2], state.step, images, rows, predict)
        shown = jax.lax.stop_gradient(_together(views))

        def loss_fn(params: nnx.State) -> tuple[jax.Array, Any]:
            all_logits, stats = forward(params, state.stats, shown, train=True, key=keys[3])
            logits = _apart(all_logits, len(views))
            targets, new_method_state = method.targets(
                method_state, state.step, rows, jax.lax.stop_gradient(logits[0])
            )
            loss = method.loss(logits, targets, rows).mean()
            return loss, (logits[0], stats, new_method_state)

        (loss, (logits, stats, method_state)), gradients = method.grad(
            loss_fn, state.params, state.step
        )
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        right = jnp.argmax(logits, axis=-1) == rows["label"]
        metrics = {
            "loss": loss,
            "accuracy": right.astype(jnp.float32).mean(),
            "gradient_norm": optax.tree.norm(gradients),
            **method.metrics(method_state, state.step),
        }
        average = _moved(state, params, stats, ema_decay)
        new = TrainState(state.step + 1, params, stats, opt_state, average, state.key, method_state)
        return new, metrics

    return jax.jit(update, donate_argnums=0)


def _together(views: Views) -> jax.Array:
    """Views [B, ...] as one batch [B * V, ...].

    The views of an image lie side by side, so that a batch split over devices stays split.
    """
    return jnp.stack(views, axis=1).reshape(-1, *views[0].shape[1:])


def _apart(logits: jax.Array, count: int) -> Views:
    """Logits [B * V, K] of `_together` as [B, K] for each view."""
    by_view = logits.reshape(-1, count, logits.shape[-1])
    return tuple(by_view[:, view] for view in range(count))


def _moved(state: TrainState, params: nnx.State, stats: nnx.State, decay: float) -> Any:
    """The slow averages after a step; young ones move faster, so as to forget the initial weights."""
    if state.average is None:
        return None
    age = state.step.astype(jnp.float32)
    keep = jnp.minimum(decay, (1 + age) / (10 + age))
    return jax.tree.map(
        lambda slow, fast: keep * slow + (1 - keep) * fast, state.average, (params, stats)
    )


def make_evaluate(*, forward: Forward, method: Method) -> Evaluate:
    """The jitted evaluation of one batch.

    Returns:
        `evaluate(weights, resident, batch, key, smoothed=..., noise=...)`: how many images of the
        batch are named rightly; as they are or after the method's own preprocessing, with
        Gaussian noise of a standard deviation added before, clipped to [0, 1].
    """

    def evaluate(
        weights: Any,
        resident: Batch,
        batch: Batch,
        key: jax.Array,
        *,
        smoothed: bool,
        noise: float,
    ) -> jax.Array:
        rows = gather(resident, batch)
        if noise:
            # By row of the test set, so that neither batch size nor method changes the noise.
            keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(rows["index"])
            shape = rows["image"].shape[1:]
            grain = jax.vmap(lambda k: jax.random.normal(k, shape))(keys)
            rows["image"] = jnp.clip(rows["image"] + noise * grain, 0, 1)
            # Codes belong to the images without noise.
            rows = {name: value for name, value in rows.items() if name not in _CODE_NAMES}
        images = method.preprocess(rows) if smoothed else rows["image"]
        params, stats = weights
        # Random networks draw anew for every batch.
        draw = jax.random.fold_in(jax.random.fold_in(key, _NETWORK), rows["index"][0])
        logits, _ = forward(params, stats, images, train=False, key=draw)
        right = jnp.argmax(logits, axis=-1) == rows["label"]
        return jnp.sum(right & rows["mask"])

    return jax.jit(evaluate, static_argnames=("smoothed", "noise"))
