"""The paper's competitors in networks: their added weights, and whole small runs."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from train import loop, methods, models, optimizer, presets, run_folder, step
from train.checkpoint import Checkpoints
from train.config import Config
from train.data.sources import open_source
from train.methods.awp import worsen
from train.models.noise import add_noise, make_noisy
from train.setup import assemble, build_model
from train.sharding import Layout
from train.state import create

SIDE, CLASSES = 8, 4
# Two steps in an epoch, and as little of everything else as there can be; without noise the
# closing table needs no programs of its own.
SMALL = {"limit_train": 32, "limit_test": 16, "eval_batch_size": 16, "epochs": 2, "noise": 0.0}
RUNS = {
    "tv_layer": {"view": "blur"},
    "pni": {"attack_steps": 1, "view": "blur"},
    "adversarial": {"attack_steps": 1, "view": "fix"},
    "sat": {"sat_start": 1, "trades_beta": 0.0},
    "awp": {"attack_steps": 1, "awp_warmup": 1.0, "trades_beta": 6.0},
    "augmix": {"view": "blur"},
    "noise": {"view": "iterative"},
}


@pytest.mark.parametrize("name", RUNS)
def test_every_competitor_trains_and_its_weights_come_back(name, tiny, tmp_path):
    config = presets.fill(tiny(method=name, out=tmp_path / "run", **SMALL, **RUNS[name]))
    summary = loop.run(config)
    assert summary["steps"] == 4 and summary["method"] == name
    file = tmp_path / "run" / run_folder.WEIGHTS
    dataset = open_source("shapes", limit_train=1, limit_test=1)
    model = methods.build(config, 1).wrap(build_model(config, dataset))
    initial = added(model)
    models.load(model, file, allow_new_head=False)
    models.save(model, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()
    # What the method added has learned.
    assert bool(initial) == (name in ("tv_layer", "pni"))
    for path, value in added(model).items():
        assert (value != initial[path]).any(), path


def added(model):
    """Parameters that a method put into a model."""
    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {
        path: np.asarray(variable.get_value())
        for path, variable in flat
        if "smoothing" in path or "noise_scale" in path
    }


def test_sat_goes_on_from_a_checkpoint_as_if_nothing_had_happened(tiny, tmp_path):
    config = presets.fill(tiny(method="sat", **SMALL, **RUNS["sat"]))
    dataset = open_source("shapes", seed=config.seed, limit_train=32, limit_test=16)
    parts = assemble(config, dataset, Layout())
    assert parts.feed.steps_per_epoch == 2

    def advance(state, first, last):
        with contextlib.closing(parts.feed.train_batches(first)) as batches:
            for _ in range(first, last):
                state, _ = parts.update(state, parts.feed.train, next(batches))
        return state

    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        state = advance(jax.tree.map(jnp.copy, parts.initial), 0, 2)
        assert not np.asarray(state.method.own).any()  # the first epoch is before its start
        state = advance(state, 2, 3)
        assert np.asarray(state.method.own).any(axis=1).sum() == 16
        checkpoints.save(3, state)
        checkpoints.wait()
        expected = jax.tree.map(np.asarray, drop_key(advance(state, 3, 4)))
        restored = checkpoints.restore(parts.initial)
    ours = drop_key(advance(restored, 3, 4))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(ours.method.own.sum(1), 1, rtol=1e-5)


def drop_key(state):
    return state._replace(key=None)


def make(name="_tiny"):
    return models.build(name, num_classes=CLASSES, image_size=SIDE, rngs=nnx.Rngs(0))


@functools.cache
def initial():
    # All weights in one compilation.
    graph = nnx.graphdef(nnx.eval_shape(make))
    return graph, jax.jit(lambda: nnx.state(make()))()


def build():
    return nnx.merge(*initial(), copy=True)


def test_noise_is_fresh_and_as_large_as_learned():
    model, noisy = build(), build()
    make_noisy(noisy, "channel")
    graph, params, stats = nnx.split(noisy, nnx.Param, nnx.BatchStat)
    images = jax.random.uniform(jax.random.key(0), (2, SIDE, SIDE, 3))

    @jax.jit
    def run(params, key):
        return models.apply(graph, params, stats, images, train=False, key=key)[0]

    keys = jax.random.split(jax.random.key(1))
    one, other = (run(params, key) for key in keys)
    assert (one != other).all() and (run(params, keys[0]) == one).all()
    with pytest.raises(ValueError, match="random weights: expected a key"):
        models.apply(graph, params, stats, images, train=False)
    silent = jax.tree.map_with_path(
        lambda path, value: 0 * value if "noise_scale" in jax.tree_util.keystr(path) else value,
        params,
    )
    plain = nnx.split(model, nnx.Param, nnx.BatchStat)
    expected = jax.jit(lambda images: models.apply(*plain, images, train=False)[0])(images)
    np.testing.assert_allclose(run(silent, keys[0]), expected, atol=1e-5)


@pytest.mark.parametrize("granularity", ["layer", "channel", "element"])
def test_noise_has_the_deviation_of_its_kernel(granularity):
    model, noisy = build(), build()
    make_noisy(noisy, granularity)
    shape = {"layer": (1,), "channel": (16,), "element": (3, 3, 16, 16)}[granularity]
    scale = noisy.stages[1][0].conv2.noise_scale
    assert scale.shape == shape and (scale[...] == 0.25).all()
    mask = optimizer.kernels(nnx.state(noisy, nnx.Param))
    decayed = {path: leaf.get_value() for path, leaf in nnx.to_flat_state(mask)}
    assert all(value == (path[-1] == "kernel") for path, value in decayed.items())
    add_noise(noisy, jax.random.key(0))
    before, after = (m.stages[1][0].conv2.kernel[...] for m in (model, noisy))
    assert float((after - before).std() / before.std()) == pytest.approx(0.25, rel=0.05)


def test_weights_without_the_added_layers_are_a_start_but_no_result(tmp_path):
    plain, file = build(), tmp_path / "plain.safetensors"
    models.save(plain, file)
    noisy = build()
    make_noisy(noisy, "layer")
    with pytest.raises(ValueError, match=r"missing in the file: .*linear.noise_scale"):
        models.load(noisy, file)
    report = models.load(noisy, file, allow_new_layers=True)
    assert "conv1.noise_scale" in report.fresh and "conv1.weight" in report.loaded
    make_noisy(plain, "channel")
    models.save(plain, file)
    with pytest.raises(ValueError, match=r"other shape: .*noise_scale"):
        models.load(noisy, file, allow_new_layers=True)


def test_our_layer_stands_where_theirs_does():
    """At level 0 every position shows the same; and a scheduled level rises in training alone."""
    options = {"method": "tv_layer", "layer": "isvs", "epochs": 3}
    fixed = methods.build(presets.fill(Config(**options, layer_level=0.0)), 1).wrap(build())
    rising = {"layer_mode": "scheduled", "layer_level": 0.6, "layer_level_from": 0.2}
    method = methods.build(presets.fill(Config(**options, **rising)), 1)
    scheduled = method.wrap(build())
    first = jax.random.normal(jax.random.key(0), (2, 4, 4, fixed.first_features))
    smoothed = fixed.smoothed(first, train=False)
    np.testing.assert_allclose(smoothed, jnp.broadcast_to(smoothed[:, :1, :1], first.shape))
    levels = []
    for train in (True, False, True, True):
        levels.append(float(scheduled.smoothing[0].level[...]))
        scheduled.smoothed(first, train=train)
    np.testing.assert_allclose(levels, [0.2, 0.4, 0.4, 0.6], rtol=1e-5)
    # A ViT has a place for it too.
    model = nnx.eval_shape(lambda: method.wrap(make("vit_tiny")))
    graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)
    images = jax.ShapeDtypeStruct((2, SIDE, SIDE, 3), jnp.float32)
    run = jax.eval_shape(
        lambda *arrays: models.apply(graph, *arrays, train=True), params, stats, images
    )
    assert run[0].shape == (2, CLASSES) and len(jax.tree.leaves(run[2])) == 1


def test_awp_moves_from_the_weights_and_averages_once():
    graph, params, stats = nnx.split(build(), nnx.Param, nnx.BatchStat)
    rng = np.random.default_rng(0)
    resident = {
        "image": jnp.asarray(rng.integers(0, 256, (8, SIDE, SIDE, 3), np.uint8)),
        "label": jnp.arange(8, dtype=jnp.int32) % CLASSES,
    }
    # One step of no length: the attack leaves its random start, which is as good as any image.
    options = {"attack_steps": 1, "attack_step": 1e-9, "attack_epsilon": 1e-9, "awp_gamma": 0.05}
    method = methods.build(presets.fill(Config(method="awp", **options)), 1)
    rule = optax.sgd(0.1)
    update = step.make_update(
        forward=step.Forward(graph, None),
        method=method,
        optimizer=rule,
        augment=lambda key, images: images,
        num_classes=CLASSES,
        label_smoothing=0.0,
        ema_decay=0.0,
    )
    spec = methods.Spec(8, CLASSES, (SIDE, SIDE, 3))
    copies = jax.tree.map(jnp.copy, (params, stats))
    state = create(
        *copies,
        opt_state=rule.init(params),
        method_state=method.init(spec),
        seed=0,
        averaged=False,
    )
    batch = {"index": jnp.arange(8), "mask": jnp.ones(8, bool)}
    state, metrics = update(state, resident, batch)

    images = resident["image"].astype(jnp.float32) / 255

    @jax.jit
    def loss_and_stats(params):
        def loss_fn(params):
            logits, _, new = models.apply(graph, params, stats, images, train=True)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, resident["label"])
            return losses.mean(), new

        return jax.value_and_grad(loss_fn, has_aux=True)(params)

    (plain_loss, _), ascent = loss_and_stats(params)
    (loss, moved), gradient = loss_and_stats(worsen(params, ascent, 0.05))
    assert float(metrics["loss"]) == pytest.approx(float(loss), rel=1e-4)
    assert float(loss) > float(plain_loss)
    expected = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
    for ours, theirs in zip(
        jax.tree.leaves((state.params, state.stats)),
        jax.tree.leaves((expected, moved)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
