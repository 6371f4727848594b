import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from train import methods, models, optimizer, presets, step
from train.config import Config
from train.methods import Method
from train.state import create

ROWS, SIDE, CLASSES = 20, 8, 4


@pytest.fixture(scope="module")
def resident():
    rng = np.random.default_rng(0)
    return {
        "image": jnp.asarray(rng.integers(0, 256, (ROWS, SIDE, SIDE, 3), np.uint8)),
        "label": jnp.arange(ROWS, dtype=jnp.int32) % CLASSES,
    }


@pytest.fixture(scope="module")
def split():
    model = models.build("_tiny", num_classes=CLASSES, image_size=SIDE, rngs=nnx.Rngs(0))
    return nnx.split(model, nnx.Param, nnx.BatchStat)


@dataclasses.dataclass(frozen=True)
class Spy(Method):
    """Counts rows in its state, shows black images, and learns nothing."""

    def init(self, spec):
        return jnp.zeros((spec.num_train,), jnp.int32)

    def view(self, state, key, step, batch, predict):
        assert predict(key, batch["image"]).shape == (len(batch["index"]), CLASSES)
        return batch["image"] * 0, state.at[batch["index"]].add(1)

    def views(self, key, step, images, batch, predict):
        return images, images + 0.5, images + 1.0

    def targets(self, state, step, batch, logits):
        assert logits.shape == (len(batch["index"]), CLASSES)
        return batch["target"] * 2, state.at[batch["index"]].add(10)

    def loss(self, logits, targets, batch):
        assert len(logits) == 3
        return 100 + targets.sum(-1)

    def grad(self, loss_fn, params, step):
        loss, extra = loss_fn(params)
        return (loss, extra), jax.tree.map(jnp.zeros_like, params)

    def metrics(self, state, step):
        return {"visits": state.sum()}


def prepare(split, method=None, rule=None, *, seed=0, ema_decay=0.0, label_smoothing=0.0):
    graph, params, stats = split
    method = method or Method(sparsity=0.6)
    rule = rule or optax.sgd(0.1)
    update = step.make_update(
        forward=step.Forward(graph, None),
        method=method,
        optimizer=rule,
        augment=lambda key, images: images,
        num_classes=CLASSES,
        label_smoothing=label_smoothing,
        ema_decay=ema_decay,
    )
    params, stats = jax.tree.map(jnp.copy, (params, stats))
    state = create(
        params,
        stats,
        opt_state=rule.init(params),
        method_state=method.init(methods.Spec(ROWS, CLASSES, (SIDE, SIDE, 3))),
        seed=seed,
        averaged=ema_decay > 0,
    )
    return update, state


def rows(*numbers):
    return {"index": jnp.array(numbers, jnp.int32), "mask": jnp.ones(len(numbers), bool)}


def test_update_learns_and_gives_its_memory_away(split, resident):
    update, state = prepare(split)
    old = state.params
    losses = []
    for _ in range(20):
        state, metrics = update(state, resident, rows(*range(ROWS)))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] / 2
    assert int(state.step) == 20
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old))


def test_update_is_what_the_equations_say(split, resident):
    graph, params, stats = split
    update, state = prepare(split, label_smoothing=0.1)
    images = resident["image"].astype(jnp.float32) / 255
    targets = 0.9 * jax.nn.one_hot(resident["label"], CLASSES) + 0.1 / CLASSES

    def loss_fn(params):
        logits, _, _ = models.apply(graph, params, stats, images, train=True)
        return -(targets * jax.nn.log_softmax(logits)).sum(-1).mean()

    loss, gradient = jax.value_and_grad(loss_fn)(params)
    state, metrics = update(state, resident, rows(*range(ROWS)))
    assert float(metrics["loss"]) == pytest.approx(float(loss), rel=1e-5)
    assert float(metrics["gradient_norm"]) == pytest.approx(
        float(optax.tree.norm(gradient)), rel=1e-3
    )
    expected = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
    for ours, theirs in zip(jax.tree.leaves(state.params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_streamed_and_resident_batches_agree(split, resident):
    update, state = prepare(split)
    one, _ = update(state, resident, rows(3, 1, 4))
    update, state = prepare(split)
    picked = {name: values[jnp.array([3, 1, 4])] for name, values in resident.items()}
    other, _ = update(state, {}, {**rows(3, 1, 4), **picked})
    for a, b in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_hooks_are_called_in_the_update(split, resident):
    update, state = prepare(split, Spy(sparsity=0.6))
    before = jax.tree.map(np.asarray, state.params)
    state, metrics = update(state, resident, rows(5, 6))
    state, metrics = update(state, resident, rows(6, 7))
    assert state.method.tolist()[4:9] == [0, 11, 22, 11, 0]
    assert int(metrics["visits"]) == 44
    assert float(metrics["loss"]) == 102
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(state.params), strict=True):
        assert (a == b).all()


def test_views_are_one_batch_of_which_the_first_is_scored(split, resident):
    """Shown twice, an image counts twice in the batch; averages and losses are those of both."""
    graph, params, stats = split

    @dataclasses.dataclass(frozen=True)
    class Inverted(Method):
        def views(self, key, step, images, batch, predict):
            return images, 1 - images

    update, state = prepare(split, Inverted(sparsity=0.6))
    picked = rows(*range(8))
    state, metrics = update(state, resident, picked)
    images = resident["image"][:8].astype(jnp.float32) / 255
    together = jnp.concatenate([images, 1 - images])
    logits, _, expected = models.apply(graph, params, stats, together, train=True)
    labels = jnp.tile(resident["label"][:8], 2)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    assert float(metrics["loss"]) == pytest.approx(float(losses.mean()), rel=1e-5)
    accuracy = (logits[:8].argmax(-1) == labels[:8]).mean()
    assert float(metrics["accuracy"]) == pytest.approx(float(accuracy))
    for ours, theirs in zip(jax.tree.leaves(state.stats), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_step_names_no_method():
    source = inspect.getsource(step)
    for name in (*methods.NAMES, "lbi", "trades"):
        # Noise is also what test images get.
        assert name == "noise" or name not in source.lower()


def test_averages_follow_slowly(split, resident):
    update, state = prepare(split, ema_decay=0.99)
    start = np.asarray(jax.tree.leaves(state.params)[0])
    for _ in range(3):
        state, _ = update(state, resident, rows(*range(ROWS)))
    fast, slow = (
        np.asarray(jax.tree.leaves(tree[0])[0]) for tree in ((state.params, 0), state.weights)
    )
    assert 0 < np.abs(slow - start).sum() < np.abs(fast - start).sum()


def test_evaluation_counts_real_rows(split, resident):
    graph, params, stats = split
    evaluate = step.make_evaluate(forward=step.Forward(graph, None), method=Method(sparsity=0.6))
    images = resident["image"].astype(jnp.float32) / 255
    logits, _, _ = models.apply(graph, params, stats, images, train=False)
    right = np.asarray(logits.argmax(-1) == resident["label"])
    batch = {**rows(*range(ROWS)), "mask": jnp.arange(ROWS) < 13}
    key = jax.random.key(0)
    count = evaluate((params, stats), resident, batch, key, smoothed=False, noise=0.0)
    assert int(count) == right[:13].sum()
    evaluate((params, stats), resident, batch, key, smoothed=True, noise=0.1)


def test_resizing_happens_before_the_network(split):
    graph, params, stats = split
    images = jnp.ones((2, SIDE, SIDE, 3)) * 0.5
    logits, _ = step.Forward(graph, 16)(params, stats, images, train=False)
    expected, _, _ = models.apply(graph, params, stats, jnp.ones((2, 16, 16, 3)) * 0.5, train=False)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)


def test_weight_decay_is_on_kernels_alone(split):
    _, params, _ = split
    mask = optimizer.kernels(params)
    leaves = jax.tree.leaves_with_path(mask)
    named = {jax.tree_util.keystr(path): value for path, value in leaves}
    assert any(named.values()) and not all(named.values())
    assert all(value == ("kernel" in name) for name, value in named.items())


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_optimizer_warms_up_decays_and_clips(name, split):
    _, params, _ = split
    config = presets.fill(
        Config(optimizer=name, epochs=10, learning_rate=0.2, warmup_epochs=1.0, clip_norm=1.0)
    )
    rate = optimizer.schedule(config, steps_per_epoch=5)
    assert [float(rate(n)) for n in (0, 5)] == pytest.approx([0.0, 0.2])
    assert float(rate(50)) == pytest.approx(0.0, abs=1e-6)
    rule = optimizer.build(config, steps_per_epoch=5)
    state = rule.init(params)
    huge = jax.tree.map(lambda p: jnp.full_like(p, 1e6), params)
    for _ in range(3):
        updates, state = rule.update(huge, state, params)
    assert float(optax.tree.norm(updates)) < 50
