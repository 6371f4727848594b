"""What defines each of the paper's competitors, on small functions in the place of networks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from PIL import Image, ImageOps
from scipy import special

import isvs
from train import methods, presets
from train.config import Config
from train.methods import image_operations as operations
from train.methods.adversarial import divergence
from train.methods.augmix import jsd
from train.methods.awp import worsen

ROWS, SIDE, CLASSES, EPOCHS = 12, 8, 4, 10
SHAPE = (SIDE, SIDE, 3)
KEY = jax.random.key(0)


def build(steps_per_epoch=1, **options):
    config = presets.fill(Config(epochs=EPOCHS, **options))
    return methods.build(config, steps_per_epoch)


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    rows = jnp.array([3, 0, 7, 5])
    ramp = np.linspace(0.2, 0.8, SIDE)[None, :, None, None]
    labels = rows % CLASSES
    return {
        "image": jnp.asarray(ramp + rng.uniform(-0.1, 0.1, (4, *SHAPE)), jnp.float32),
        "label": labels,
        "target": jax.nn.one_hot(labels, CLASSES),
        "index": rows,
    }


@pytest.fixture(scope="module")
def predict():
    weights = jax.random.normal(jax.random.key(5), (SIDE * SIDE * 3, CLASSES))
    return lambda key, images: jnp.tanh(images.reshape(len(images), -1) @ weights / 4)


def cross_entropy(predict, images, batch):
    return optax.softmax_cross_entropy_with_integer_labels(predict(KEY, images), batch["label"])


def views(method, batch, predict, step=3):
    return jax.jit(lambda b: method.views(KEY, jnp.int32(step), b["image"], b, predict))(batch)


def test_attacked_images_are_worse_and_near(batch, predict):
    method = build(method="adversarial", attack_epsilon=0.05, attack_step=0.02, attack_steps=5)
    (attacked,) = views(method, batch, predict)
    assert float(jnp.abs(attacked - batch["image"]).max()) <= 0.05 + 1e-6
    assert float(attacked.min()) >= 0 and float(attacked.max()) <= 1
    before, after = (cross_entropy(predict, x, batch) for x in (batch["image"], attacked))
    assert (after > before).all()


def test_trades_attacks_the_divergence(batch, predict):
    method = build(method="adversarial", trades_beta=6.0, attack_epsilon=0.05)
    clean, attacked = views(method, batch, predict)
    assert (clean == batch["image"]).all()
    noise = jax.random.uniform(KEY, clean.shape, minval=-0.05, maxval=0.05)
    ours, random = (
        divergence(predict(KEY, clean), predict(KEY, x)) for x in (attacked, clean + noise)
    )
    assert (ours > random).all()


def test_trades_loss_is_cross_entropy_where_nothing_moved():
    logits, others = jax.random.normal(KEY, (2, 5, CLASSES))
    targets = jax.nn.one_hot(jnp.arange(5) % CLASSES, CLASSES)
    plain = optax.softmax_cross_entropy(logits, targets)
    trades = build(method="adversarial", trades_beta=6.0)
    np.testing.assert_allclose(trades.loss((logits, logits), targets, {}), plain, rtol=1e-6)
    np.testing.assert_allclose(
        build(method="adversarial").loss((logits,), targets, {}), plain, rtol=1e-6
    )
    p, q = (special.softmax(np.asarray(x, np.float64), axis=-1) for x in (logits, others))
    expected = plain + 6 * special.rel_entr(p, q).sum(-1)
    np.testing.assert_allclose(trades.loss((logits, others), targets, {}), expected, rtol=1e-5)


def test_an_attack_through_smoothing_starts_at_the_pixels(batch, predict):
    options = {"method": "adversarial", "view": "fix", "sparsity": 0.5, "attack_epsilon": 0.05}
    through = build(**options, attack_through="smoothing")
    assert not through.train_codes and build(**options).train_codes

    class Remembering(type(through)):
        def worst(self, *arguments):
            found.append(super().worst(*arguments))
            return found[-1]

    found = []
    fields = {field.name: getattr(through, field.name) for field in dataclasses.fields(through)}
    through = Remembering(**fields)

    @jax.jit
    def attack(batch):
        images, _ = through.view(through.init(None), KEY, jnp.int32(0), batch, predict)
        (shown,) = through.views(KEY, jnp.int32(0), images, batch, predict)
        return found.pop(), shown

    worst, shown = attack(batch)
    assert float(jnp.abs(worst - batch["image"]).max()) <= 0.05 + 1e-6
    np.testing.assert_allclose(shown, isvs.smooth(worst, 0.5), atol=1e-6)
    smoothed = isvs.smooth(batch["image"], 0.5)
    assert (cross_entropy(predict, shown, batch) > cross_entropy(predict, smoothed, batch)).all()
    # The attack on what the view shows leaves the regions; this one does not.
    (on_view,) = views(build(**options), {**batch, "image": smoothed}, predict)
    regions = [len(np.unique(np.asarray(x[0]).reshape(-1, 3), axis=0)) for x in (shown, on_view)]
    assert regions[0] < regions[1]


def test_awp_goes_up_and_gradients_apply_where_they_started():
    params = {"kernel": jnp.array([[3.0, 0.0], [0.0, 4.0]]), "bias": jnp.array([1.0, 2.0])}

    def loss_fn(params):
        return jnp.sum(params["kernel"] ** 4) + jnp.sum(params["bias"] ** 2), params

    method = build(method="awp", awp_gamma=0.01, awp_warmup=2.0, steps_per_epoch=3)
    (_, _), plain = method.grad(loss_fn, params, jnp.int32(5))
    expected = jax.grad(lambda p: loss_fn(p)[0])(params)
    np.testing.assert_allclose(plain["kernel"], expected["kernel"])
    (loss, at), gradient = method.grad(loss_fn, params, jnp.int32(6))
    assert float(loss) > float(loss_fn(params)[0])
    moved = at["kernel"] - params["kernel"]
    assert float(jnp.linalg.norm(moved)) == pytest.approx(0.01 * 5, rel=1e-3)
    cosine = jnp.vdot(moved, expected["kernel"]) / jnp.linalg.norm(expected["kernel"]) / 0.05
    assert float(cosine) == pytest.approx(1, rel=1e-3)
    assert (at["bias"] == params["bias"]).all()
    np.testing.assert_allclose(gradient["kernel"], 4 * at["kernel"] ** 3, rtol=1e-5)
    still = worsen(params, jax.tree.map(jnp.zeros_like, params), 0.01)
    assert (still["kernel"] == params["kernel"]).all()


def test_sat_moves_targets_after_its_start(batch):
    method = build(method="sat", sat_start=7, steps_per_epoch=2)
    state = method.init(methods.Spec(ROWS, CLASSES, SHAPE))
    logits = jax.random.normal(KEY, (4, CLASSES))
    targets, after = method.targets(state, jnp.int32(13), batch, logits)
    assert (targets == batch["target"]).all() and not after.own.any()
    expected = np.asarray(batch["target"])
    for step in (14, 15):
        expected = 0.9 * expected + 0.1 * special.softmax(np.asarray(logits), axis=-1)
        targets, after = method.targets(after, jnp.int32(step), batch, logits)
        np.testing.assert_allclose(after.own[batch["index"]], expected, rtol=1e-5)
        weights = expected.max(-1) / expected.max(-1).mean()
        np.testing.assert_allclose(targets, expected * weights[:, None], rtol=1e-5)
    others = np.setdiff1d(np.arange(ROWS), batch["index"])
    assert not np.asarray(after.own)[others].any()


def test_sat_without_divergence_attacks_nothing(batch, predict):
    (shown,) = views(build(method="sat", trades_beta=0.0), batch, predict)
    assert (shown == batch["image"]).all()
    assert len(views(build(method="sat", attack_steps=1), batch, predict)) == 2


def test_pni_trains_half_and_half(batch, predict):
    method = build(method="pni", attack_steps=2)
    assert method.random and not build(method="adversarial").random
    clean, attacked = views(method, batch, predict)
    assert (clean == batch["image"]).all() and (clean != attacked).any()
    logits = tuple(predict(KEY, x) for x in (clean, attacked))
    losses = [cross_entropy(predict, x, batch) for x in (clean, attacked)]
    np.testing.assert_allclose(
        method.loss(logits, batch["target"], batch), (losses[0] + losses[1]) / 2, rtol=1e-5
    )


def test_noise_changes_exactly_half(predict):
    count = 7
    images = jnp.full((count, *SHAPE), 0.95)
    (shown,) = views(build(method="noise", noise_sigma=0.2), {"image": images}, predict)
    changed = np.asarray((shown != images).any((1, 2, 3)))
    assert changed.sum() == count // 2
    assert float(shown.max()) == 1 and float(shown.min()) >= 0
    below = np.asarray(shown)[changed] - 0.95
    assert np.sqrt(np.mean(np.minimum(below, 0) ** 2) * 2) == pytest.approx(0.2, rel=0.1)


# AugMix


def test_jsd():
    logits = jax.random.normal(KEY, (3, 5, CLASSES))
    np.testing.assert_allclose(jsd((logits[0],) * 3), 0, atol=1e-6)
    each = special.softmax(np.asarray(logits, np.float64), axis=-1)
    expected = special.rel_entr(each, each.mean(0)).sum(-1).mean(0)
    np.testing.assert_allclose(jsd(tuple(logits)), expected, rtol=1e-5)
    method = build(method="augmix")
    targets = jax.nn.one_hot(jnp.arange(5) % CLASSES, CLASSES)
    plain = optax.softmax_cross_entropy(logits[0], targets)
    losses = method.loss(tuple(logits), targets, {})
    np.testing.assert_allclose(losses, plain + 12 * expected, rtol=1e-5)


@pytest.fixture(scope="module")
def pictures():
    """Blobs of several sizes and ranges, and one picture of a single colour, as bytes."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:24, :32] / 8
    found = [np.full((24, 32, 3), 77, np.uint8)]
    for number in range(5):
        waves = [np.sin(x * rng.uniform(0.5, 2) + y * rng.uniform(0.5, 2)) for _ in range(3)]
        noisy = np.stack(waves, -1) * (20 + 20 * number) + rng.normal(0, 4, (24, 32, 3)) + 120
        found.append(np.uint8(np.clip(noisy, 0, 255)))
    return np.stack(found)


def as_floats(pictures):
    return jnp.asarray(pictures, jnp.float32) / 255


def as_bytes(images):
    return np.uint8(np.round(np.asarray(images) * 255))


def by_pillow(pictures, change):
    return np.stack([np.asarray(change(Image.fromarray(picture))) for picture in pictures])


def test_levels_change_as_in_pillow(pictures):
    bits, thresholds = (1, 3, 4, 8), (0, 100, 256)

    @jax.jit
    def ours(images):
        def all_images(number):
            return jnp.full(len(images), number)

        return {
            "autocontrast": operations.autocontrast(images),
            "equalize": operations.equalize(images),
            **{f"{n} bits": operations.posterize(images, all_images(n)) for n in bits},
            **{f"from {n}": operations.solarize(images, all_images(n)) for n in thresholds},
        }

    changes = {
        "autocontrast": ImageOps.autocontrast,
        "equalize": ImageOps.equalize,
        **{f"{n} bits": lambda p, n=n: ImageOps.posterize(p, n) for n in bits},
        **{f"from {n}": lambda p, n=n: ImageOps.solarize(p, n) for n in thresholds},
    }
    results = ours(as_floats(pictures))
    for name, change in changes.items():
        apart = np.abs(np.int32(as_bytes(results[name])) - by_pillow(pictures, change)).max()
        # Pillow stretches by a rounded factor where we divide whole numbers.
        assert apart <= (name == "autocontrast"), name


def affine(*matrix):
    return lambda p: p.transform(p.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


@pytest.mark.parametrize("amount", [-1.0, 1.0])
def test_movements_are_those_of_pillow(pictures, amount):
    images = as_floats(pictures)
    full = jnp.full(len(pictures), amount)
    none = 0 * full
    cases = [
        (
            operations.rotation(20 * full, 24, 32),
            lambda p: p.rotate(20 * amount, resample=Image.Resampling.BILINEAR),
        ),
        (operations.shear(0.2 * full, none), affine(1, 0.2 * amount, 0, 0, 1, 0)),
        (operations.shear(none, 0.2 * full), affine(1, 0, 0, 0.2 * amount, 1, 0)),
        (operations.translation(3 * full, none), affine(1, 0, 3 * amount, 0, 1, 0)),
        (operations.translation(none, 3 * full), affine(1, 0, 0, 0, 1, 3 * amount)),
    ]
    moved = jax.jit(operations.warp)
    for matrix, change in cases:
        ours, theirs = as_bytes(moved(images, matrix)), by_pillow(pictures, change)
        error = np.mean((np.float64(ours) - theirs) ** 2)
        assert 10 * np.log10(255**2 / max(error, 1e-9)) > 45
        assert (ours != pictures).mean() > 0.3


def test_each_image_gets_its_own_operation(pictures):
    images = as_floats(np.repeat(pictures[3:4], len(operations.OPERATIONS), axis=0))
    places = jnp.arange(len(operations.OPERATIONS))
    strength = jnp.full(len(places), 3.0)
    results = as_bytes(jax.jit(operations.operate)(images, places, strength, jnp.ones(len(places))))
    picture = Image.fromarray(pictures[3])
    expected = {
        "autocontrast": ImageOps.autocontrast(picture),
        "equalize": ImageOps.equalize(picture),
        "posterize": ImageOps.posterize(picture, 3),
        "solarize": ImageOps.solarize(picture, 256 - 76),
        "rotate": picture.rotate(9, resample=Image.Resampling.BILINEAR),
        "shear_x": affine(1, 0.09, 0, 0, 1, 0)(picture),
        "shear_y": affine(1, 0, 0, 0.09, 1, 0)(picture),
        "translate_x": affine(1, 0, 3, 0, 1, 0)(picture),
        "translate_y": affine(1, 0, 0, 0, 1, 2)(picture),
    }
    assert tuple(expected) == operations.OPERATIONS
    for result, (name, picture) in zip(results, expected.items(), strict=True):
        difference = np.abs(np.int32(result) - np.asarray(picture))
        assert np.quantile(difference, 0.99) <= 1, name


def test_mixtures_lie_between_an_image_and_its_chains(batch, predict):
    method = build(method="augmix")
    run = jax.jit(lambda images: method.views(KEY, jnp.int32(0), images, {}, predict))
    clean, one, other = run(batch["image"])
    assert (clean == batch["image"]).all()
    assert (one != other).any((1, 2, 3)).all() and (one != clean).any((1, 2, 3)).all()
    assert float(min(one.min(), other.min())) >= 0 and float(max(one.max(), other.max())) <= 1
    # At this severity every operation leaves black as it is.
    assert not any(np.asarray(x).any() for x in run(jnp.zeros_like(clean)))
