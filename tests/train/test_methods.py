import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvs
from train import methods, presets
from train.config import Config
from train.methods.blur import gaussian_blur
from train.methods.iterative import IterativeLBI

ROWS, SIDE, CLASSES, STEPS = 12, 8, 4, 10
SHAPE = (SIDE, SIDE, 3)
FORMS = [
    *({"method": name} for name in methods.NAMES),
    {"iterate": "lbi", "lbi_steps": 3},
    {"method": "fix", "stiffness": 5.0, "speckle_area": 2},
    {"method": "noise", "view": "iterative", "iterate": "lbi", "lbi_steps": 3},
    {"method": "adversarial", "trades_beta": 6.0, "view": "fix"},
    {"method": "sat", "trades_beta": 0.0, "view": "blur"},
    {"method": "awp", "awp_warmup": 2.0, "view": "iterative"},
]


def ids(options):
    return "-".join(map(str, options.values()))


def build(**options):
    return methods.build(presets.fill(Config(epochs=STEPS, **options)), steps_per_epoch=1)


@pytest.fixture(scope="module")
def images():
    # Smooth ramps with some noise: flat enough to be smoothed, no two pixels alike.
    rng = np.random.default_rng(0)
    ramp = np.linspace(0.2, 0.8, SIDE)[None, :, None, None]
    return jnp.asarray(ramp + rng.uniform(-0.1, 0.1, (ROWS, *SHAPE)), jnp.float32)


@pytest.fixture(scope="module")
def batch(images):
    rows = jnp.array([3, 0, 7, 5])
    space = isvs.encode(images[rows])
    labels = rows % CLASSES
    return {
        "image": images[rows],
        "down": space.down,
        "right": space.right,
        "label": labels,
        "target": jax.nn.one_hot(labels, CLASSES),
        "index": rows,
        "mask": jnp.ones(4, bool),
    }


def predict(key, images):
    return images.mean((1, 2)) @ jnp.ones((3, CLASSES))


def view(method, state, step, batch):
    key = jax.random.key(0)
    return jax.jit(lambda s, n, b: method.view(s, key, n, b, predict))(
        state, jnp.int32(step), batch
    )


@pytest.mark.parametrize("options", FORMS, ids=ids)
def test_every_method_keeps_the_contract(options, batch):
    method = build(**options)
    assert dataclasses.is_dataclass(method) and isinstance(method, methods.Method)
    assert hash(method) == hash(build(**options))
    state = method.init(methods.Spec(ROWS, CLASSES, SHAPE))
    seen = {k: v for k, v in batch.items() if method.train_codes or k not in ("down", "right")}
    shown, after = view(method, state, 3, seen)
    assert shown.shape == batch["image"].shape and shown.dtype == jnp.float32
    assert bool(jnp.isfinite(shown).all()) and float(shown.min()) >= -0.2
    # The state keeps its shape, so that it can be donated and saved.
    shapes = jax.tree.map(lambda a: (a.shape, a.dtype), (state, after))
    assert shapes[0] == shapes[1]
    again, _ = view(method, state, 3, seen)
    assert (again == shown).all()
    step = jnp.int32(3)
    views, targets, losses, after = jax.jit(partial(rest_of_the_step, method))(
        shown, after, seen, step
    )
    assert all(one.shape == shown.shape and bool(jnp.isfinite(one).all()) for one in views)
    assert targets.shape == (4, CLASSES)
    np.testing.assert_allclose(targets.sum(), 4, rtol=1e-5)  # weights have mean 1
    assert losses.shape == (4,) and bool(jnp.isfinite(losses).all())
    assert jax.tree.map(lambda a: (a.shape, a.dtype), after) == shapes[0]
    assert all(value.shape == () for value in method.metrics(after, step).values())
    # A vector is no weight tensor: every method follows its plain gradient.
    (loss, extra), gradient = method.grad(lambda w: (jnp.sum(w**2), 7), jnp.ones(3), step)
    assert float(loss) == 3 and int(extra) == 7 and gradient.tolist() == [2, 2, 2]
    assert method.preprocess({"image": batch["image"]}).shape == batch["image"].shape


def rest_of_the_step(method, shown, state, batch, step):
    key = jax.random.key(1)
    views = method.views(key, step, shown, batch, predict)
    logits = tuple(predict(key, one) for one in views)
    targets, state = method.targets(state, step, batch, logits[0])
    return views, targets, method.loss(logits, targets, batch), state


@pytest.mark.parametrize("view_name", ["blur", "fix", "iterative"])
def test_other_methods_show_and_prepare_what_their_view_does(view_name, batch):
    alone = build(method=view_name, sparsity=0.4)
    for name in ("noise", "adversarial", "sat", "tv_layer"):
        over = build(method=name, view=view_name, sparsity=0.4)
        state = over.init(methods.Spec(ROWS, CLASSES, SHAPE))
        assert (view(over, state, 3, batch)[0] == view(alone, None, 3, batch)[0]).all()
        assert (over.preprocess(batch) == alone.preprocess(batch)).all()
        for trait in ("train_codes", "test_codes", "has_level"):
            assert getattr(over, trait) == getattr(alone, trait)
        assert over.resident_only == (name == "sat")


def test_vanilla_changes_nothing(batch):
    shown, state = view(build(method="vanilla"), None, 0, batch)
    assert (shown == batch["image"]).all() and state is None


def test_fix_is_the_library_at_one_level(batch):
    shown, _ = view(build(method="fix", sparsity=0.4), None, 0, batch)
    assert (shown == isvs.smooth(batch["image"], 0.4)).all()


def test_iterative_path_rises(batch):
    method = build(sparsity_from=0.2, sparsity=0.7)
    for step, level in ((0, 0.2), (STEPS - 1, 0.7), (STEPS + 5, 0.7)):
        assert float(method.metrics(None, jnp.int32(step))["level"]) == pytest.approx(level)
        shown, _ = view(method, None, step, batch)
        assert (shown == isvs.smooth(batch["image"], level)).all()


def test_testing_from_codes_is_testing_by_smoothing(batch):
    for options in ({"method": "vanilla"}, {"method": "fix"}, {}):
        method = build(**options, sparsity=0.5)
        by_solver = method.preprocess({"image": batch["image"]})
        assert (method.preprocess(batch) == by_solver).all()
        assert (by_solver == isvs.smooth(batch["image"], 0.5)).all()


def lbi_levels(state, rows):
    down, right = (jnp.sum(z**2, axis=1)[rows] > 1 for z in (state.down, state.right))
    inside = down.sum((1, 2)) + right.sum((1, 2))
    return np.asarray(inside) / (2 * SIDE * (SIDE - 1))


def test_lbi_carries_the_papers_iteration(images, batch):
    """First visit to the first level, then some steps at a time, as an uninterrupted path has it."""
    method = IterativeLBI(sparsity=0.8, sparsity_from=0.3, steps=40)
    state = method.init(methods.Spec(ROWS, CLASSES, SHAPE))
    path = isvs.lbi_path(batch["image"], [0.3])
    _, state = view(method, state, 0, batch)
    taken = np.maximum(path.steps[0], 40)  # a visit takes 40 steps at least
    for visit in range(3):
        expected = after_steps(batch["image"], taken)
        np.testing.assert_allclose(state.u[batch["index"]], expected.u, atol=1e-4)
        if visit < 2:
            shown, state = view(method, state, visit + 1, batch)
            taken = taken + 40
    others = jnp.setdiff1d(jnp.arange(ROWS), batch["index"])
    assert not state.u[others].any()
    # What is shown is constant on the regions of the support.
    down = jnp.sum(state.down[batch["index"]] ** 2, axis=1) > 1
    jumps = jnp.abs(shown[:, 1:] - shown[:, :-1]).max(-1)
    assert float(jnp.where(down, 0, jumps).max()) < 1e-6


def after_steps(images, counts):
    """The library's own iteration, for each image as many steps as told."""
    solver = isvs.LBI()
    states = []
    for image, count in zip(images, counts, strict=True):
        x = jnp.moveaxis(image, -1, 0)[None]
        start = jax.vmap(isvs.lbi.init)(x)
        states.append(isvs.lbi.advance(start, x, int(count), solver))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *states)


def test_lbi_stops_at_the_last_level(batch):
    method = IterativeLBI(sparsity=0.5, sparsity_from=0.3, steps=4000)
    state = method.init(methods.Spec(ROWS, CLASSES, SHAPE))
    _, state = view(method, state, 0, batch)
    levels = lbi_levels(state, batch["index"])
    assert (levels >= 0.5).all() and (levels < 0.6).all()
    _, later = view(method, state, 1, batch)
    assert (later.u == state.u).all()


def test_lbi_leaves_black_and_flat_images_in_peace():
    method = IterativeLBI(sparsity=0.5, sparsity_from=0.3, steps=2)
    state = method.init(methods.Spec(2, CLASSES, SHAPE))
    flat = jnp.stack([jnp.zeros(SHAPE), jnp.full(SHAPE, 0.5)])
    shown, state = view(method, state, 0, {"image": flat, "index": jnp.arange(2)})
    assert not shown[0].any()
    np.testing.assert_allclose(shown[1], 0.5, atol=1e-3)


def test_blur():
    impulse = jnp.zeros((1, 9, 9, 1)).at[0, 4, 4, 0].set(1.0)
    blurred = gaussian_blur(impulse, 2.0, 3)[0, ..., 0]
    weights = np.exp(-0.5 * (np.arange(-1, 2) / 2.0) ** 2)
    weights /= weights.sum()
    np.testing.assert_allclose(blurred[3:6, 3:6], np.outer(weights, weights), rtol=1e-5)
    assert float(blurred.sum()) == pytest.approx(1, abs=1e-6)
    constant = jnp.full((1, 5, 6, 3), 0.3)
    np.testing.assert_allclose(gaussian_blur(constant, 2.0, 3), constant, rtol=1e-6)
