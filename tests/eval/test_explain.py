"""Grad-CAM and relevance propagation, against loops in NumPy and by what must hold."""

import itertools
import os
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from eval.explain import Rule, Rules, epsilon, gamma, grad_cam, relevance, rules
from train import models
from train.models.layers import Classifier
from train.models.resnet import Bottleneck, ResNet
from train.models.vit import VisionTransformer


def drawn(make):
    """Graph, params and stats with no bias, gain or shift trivial; in NumPy, which need not compile."""
    graph, params, stats = nnx.split(nnx.eval_shape(make), nnx.Param, nnx.BatchStat)
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        name = jax.tree_util.keystr(path)
        if any(f"'{part}'" in name for part in ("scale", "var")):
            return jnp.asarray(1 + 0.2 * rng.uniform(size=leaf.shape), jnp.float32)
        if "'kernel'" in name:
            deviation = np.sqrt(2 / np.prod(leaf.shape[:-1]))
            return jnp.asarray(deviation * rng.normal(size=leaf.shape), jnp.float32)
        return jnp.asarray(0.2 * rng.normal(size=leaf.shape), jnp.float32)

    return graph, *jax.tree_util.tree_map_with_path(draw, (params, stats))


def logits_of(graph, params, stats, images, **options):
    """As the network itself computes them."""
    run = jit(lambda *args: models.apply(graph, *args, train=False, **options)[0])
    return run(params, stats, images)


def small_vit(**options):
    sizes = {"hidden": 24, "layers": 2, "heads": 2, "mlp": 32, "patch_size": 4, **options}
    return VisionTransformer(num_classes=5, image_size=16, rngs=nnx.Rngs(0), **sizes)


def small_resnet(**options):
    sizes = {"width": 8, "blocks": (1, 1), **options}
    return ResNet(num_classes=5, image_size=16, rngs=nnx.Rngs(0), **sizes)


def tiny():
    return models.build("_tiny", num_classes=5, image_size=16, rngs=nnx.Rngs(0))


MODELS = {
    "tiny": tiny,
    "basic, 7x7": partial(small_resnet, stem="7x7", blocks=(3, 1)),
    "bottleneck, 3x3": partial(small_resnet, stem="3x3", block=Bottleneck),
    "vit": small_vit,
    "bfloat16": partial(small_resnet, stem="3x3", blocks=(1,), dtype=jnp.bfloat16),
}
# Small programs that run once: compiling takes the time.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
LABELS = jnp.array([0, 1, 2, 4])


def pictures(count=4, size=16):
    return jax.random.uniform(jax.random.key(1), (count, size, size, 3))


# Relevance


def slow_shares(a, w, b, R, gamma, epsilon):
    """One layer: loops over units, inputs and the rule as its docstring states it."""
    out = np.zeros(len(a))
    for j in range(w.shape[1]):
        z = a @ w[:, j] + b[j]
        g = [a[i] * w[i, j] for i in range(len(a))]
        g = [(1 + gamma) * x if x * z > 0 else x for x in g]
        bias = (1 + gamma) * b[j] if b[j] * z > 0 else b[j]
        magnitudes = [abs(a[i] * w[i, j]) for i in range(len(a))]
        total = sum(g) + bias
        total += np.sign(z) * epsilon * sum(magnitudes)
        for i in range(len(a)):
            out[i] += (g[i] + bias * magnitudes[i] / sum(magnitudes)) / total * R[j]
    return out


@pytest.mark.parametrize(
    "rule", [epsilon(0.0), epsilon(0.1), gamma(0.25), Rule(1.0, 0.01)], ids=str
)
def test_a_hidden_layer_against_loops(rule):
    rng = np.random.default_rng(0)
    sizes, x = (6, 5, 3), rng.normal(size=6)
    w1, w2 = (rng.normal(size=pair) for pair in itertools.pairwise(sizes))
    b1, b2 = rng.normal(size=5), rng.normal(size=3)
    hidden = np.maximum(x @ w1 + b1, 0)
    logits = hidden @ w2 + b2

    def network(shares):
        y = jax.nn.relu(
            rules.linear(jnp.matmul, rule, jnp.float32(x) * shares, *map(f32, (w1, b1)))
        )
        return rules.linear(jnp.matmul, rule, y, *map(f32, (w2, b2)))[1]

    R = np.where(np.arange(3) == 1, logits, 0.0)
    R = slow_shares(hidden, w2, b2, R, rule.gamma, rule.epsilon)
    expected = slow_shares(x, w1, b1, R, rule.gamma, rule.epsilon)
    got = jax.grad(network)(jnp.ones(6))
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-5)
    if rule.epsilon < 0.01:
        np.testing.assert_allclose(got.sum(), logits[1], rtol=1e-4)


def f32(array):
    return jnp.asarray(array, jnp.float32)


def test_a_linear_network_gives_weight_times_input():
    rng = np.random.default_rng(1)
    x, w1, w2 = rng.normal(size=6), rng.normal(size=(6, 5)), rng.normal(size=(5, 3))

    def network(shares):
        y = rules.linear(jnp.matmul, epsilon(0.0), f32(x) * shares, f32(w1), jnp.zeros(5))
        return rules.linear(jnp.matmul, epsilon(0.0), y, f32(w2), jnp.zeros(3))[2]

    np.testing.assert_allclose(
        jax.grad(network)(jnp.ones(6)), x * (w1 @ w2)[:, 2], rtol=1e-4, atol=1e-5
    )


def test_the_box_rule_against_loops():
    rng = np.random.default_rng(2)
    x, low, high = rng.uniform(-1, 2, size=6), np.full(6, -1.0), np.full(6, 2.0)
    w, b = rng.normal(size=(6, 3)), rng.normal(size=3)
    z = x @ w + b
    expected = np.zeros(6)
    for j in range(3):
        parts = [
            x[i] * w[i, j] - low[i] * max(w[i, j], 0) - high[i] * min(w[i, j], 0) for i in range(6)
        ]
        assert min(parts) >= 0
        expected += np.array(parts) / sum(parts) * z[j]
    got = jax.grad(
        lambda shares: rules.boxed(jnp.matmul, shares, *map(f32, (x, low, high, w, b))).sum()
    )(jnp.ones(6))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def check_conserved(parts, images, labels, rule=Rules(), within=0.01):  # noqa: B008 (frozen)
    graph, params, stats = parts
    logits = logits_of(graph, params, stats, images)
    chosen = np.take_along_axis(np.asarray(logits), np.asarray(labels)[:, None], axis=1)[:, 0]
    explain = jit(partial(relevance, graph, rule=rule, channels=True))
    by_pixel = np.asarray(explain(params, stats, images, labels))
    assert by_pixel.shape == images.shape and by_pixel.dtype == np.float32
    total = by_pixel.sum((1, 2, 3))
    scale = np.maximum(np.abs(chosen), 0.05)
    assert (np.abs(total - chosen) <= within * scale).all(), (total, chosen)
    # With both signs at work, but bounded.
    assert (np.abs(by_pixel).sum((1, 2, 3)) <= 100 * scale).all()
    return by_pixel, chosen, explain


@pytest.mark.parametrize("name", MODELS)
def test_relevance_adds_up_to_the_logit(name):
    # Half precision rounds the logits, not the relevance.
    within = 0.05 if name == "bfloat16" else 0.01
    graph, params, stats = drawn(MODELS[name])
    *_, explain = check_conserved((graph, params, stats), pictures(), LABELS, within=within)
    dead = jax.tree.map(jnp.zeros_like, params)
    nothing = explain(dead, stats, pictures(), LABELS)
    np.testing.assert_array_equal(nothing, np.zeros_like(nothing))


@pytest.mark.parametrize("name", ["tiny", "vit"])
def test_the_sum_holds_by_other_rules(name):
    rule = Rules(convolution=epsilon(), linear=gamma(), first="inside")
    check_conserved(drawn(MODELS[name]), pictures(), LABELS, rule)


class Shrink(nnx.Module):
    """Neither linear nor homogeneous, and strong enough to tell in which place it acts."""

    def __call__(self, x, *, train):
        return jnp.sign(x) * jnp.maximum(jnp.abs(x) - 0.5, 0)


@pytest.mark.parametrize("make", [partial(small_resnet, blocks=(1,)), partial(small_vit, layers=1)])
def test_smoothing_layers_keep_the_sum(make):
    def smoothing():
        model = make()
        model.smoothing.append(Shrink())
        return model

    check_conserved(drawn(smoothing), pictures(), LABELS)


def test_pixels_that_cannot_matter_have_no_relevance():
    graph, params, stats = drawn(partial(small_vit, layers=1))
    # No value goes from a patch to the class token: only the token itself is left.
    params["blocks"][0]["value"]["kernel"][...] = jnp.zeros((24, 24))
    by_pixel = jit(partial(relevance, graph))(params, stats, pictures(2), LABELS[:2])
    np.testing.assert_allclose(by_pixel, np.zeros((2, 16, 16)), atol=1e-7)


def test_unknown_trunks_and_options_are_refused():
    class Other(ResNet):
        def trunk(self, x, train, record):
            return super().trunk(x, train, record)

    with pytest.raises(ValueError, match=r"no relevance rules for Other; only for ResNet"):
        relevance(
            *drawn(lambda: Other(num_classes=5, image_size=16, rngs=nnx.Rngs(0), width=4)),
            pictures(),
            LABELS,
        )
    with pytest.raises(ValueError, match=r"first must be one of \('box', 'inside'\), got 'w2'"):
        Rules(first="w2")
    with pytest.raises(ValueError, match="0 or more"):
        gamma(-1.0)


@pytest.mark.parametrize("name", ["resnet20", "resnet56"])
def test_published_networks(name):
    folder = os.environ.get("ISVS_DATA")
    if not folder:
        pytest.skip(f"ISVS_DATA names no folder with cifar10_{name}.safetensors")
    model = models.build(name, num_classes=10, image_size=32, rngs=nnx.Rngs(0))
    models.load(model, Path(folder) / f"cifar10_{name}.safetensors", allow_new_head=False)
    reference = np.load(Path(folder) / "cifar10c_reference_20x5.npz")
    images = jnp.asarray(reference["clean"][:4] / 255, jnp.float32)
    labels = jnp.asarray(reference["labels"][:4], jnp.int32)
    parts = nnx.split(model, nnx.Param, nnx.BatchStat)
    by_pixel, chosen, _ = check_conserved(parts, images, labels)
    assert (np.abs(by_pixel).sum((1, 2, 3)) <= 3 * np.abs(chosen)).all()


# Grad-CAM


class Grid(Classifier):
    """One activation, the pixels themselves, and a head on their means: all by hand."""

    def __init__(self, weights):
        super().__init__(
            name="grid",
            num_classes=weights.shape[1],
            image_size=8,
            mean=(0.0,) * weights.shape[0],
            std=(1.0,) * weights.shape[0],
            dtype=jnp.float32,
            first_features=weights.shape[0],
        )
        self.head = nnx.Linear(*weights.shape, rngs=nnx.Rngs(0))
        self.head.kernel[...] = weights

    def trunk(self, x, train, record):
        return jnp.square(record("stage1", x)).mean((1, 2))


def explained(parts, images, labels, **options):
    graph, params, stats = parts
    return np.asarray(jit(partial(grad_cam, graph, **options))(params, stats, images, labels))


def test_grad_cam_by_hand():
    images = np.asarray(pictures(2, 8))
    weights = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    labels = np.array([1, 3])
    parts = nnx.split(Grid(jnp.asarray(weights)), nnx.Param, nnx.BatchStat)
    heat = explained(parts, jnp.asarray(images), jnp.asarray(labels))
    for image, label, got in zip(images, labels, heat, strict=True):
        gradient = 2 * image / 64 * weights[:, label]  # of sum_k w_k mean(x_k^2)
        expected = np.maximum((gradient.mean((0, 1)) * image).sum(-1), 0)
        np.testing.assert_allclose(got, expected / max(expected.max(), 1e-9), atol=1e-5)


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_grad_cam_against_finite_differences(kind):
    make, name, shape = {
        "resnet": (partial(small_resnet, stem="7x7"), "stage2", (2, 2, 2, 16)),
        "vit": (small_vit, "block0", (2, 17, 24)),
    }[kind]
    graph, params, stats = parts = drawn(make)
    images, labels = pictures(2), np.array([2, 0])

    @jit
    def run(offset):
        offsets = {name: offset}
        logits, features, _ = models.apply(
            graph, params, stats, images, train=False, offsets=offsets
        )
        return logits[np.arange(2), labels], features[name]

    side, channels = 2 if kind == "resnet" else 4, shape[-1]
    activation = np.asarray(run(jnp.zeros(shape))[1])
    weights = np.zeros((2, channels))
    for channel in range(channels):
        step = np.zeros(shape, np.float32)
        step[..., channel] = 0.02
        if kind == "vit":
            step[:, 0] = 0  # the class token stays out of the mean
        difference = np.asarray(run(step)[0] - run(-step)[0]) / 0.04
        weights[:, channel] = difference / side**2  # all places moved at once: a sum of gradients
    activation = activation if kind == "resnet" else activation[:, 1:]
    activation = activation.reshape(2, side, side, channels)
    expected = np.maximum((weights[:, None, None] * activation).sum(-1), 0)
    wanted = np.asarray(jax.image.resize(expected, (2, 16, 16), "bilinear"))
    assert wanted.max() > 0
    heat = explained(parts, images, jnp.asarray(labels))
    largest = wanted.max((1, 2), keepdims=True)
    np.testing.assert_allclose(heat, wanted / np.where(largest > 0, largest, 1), atol=0.02)


@pytest.mark.parametrize("make", [tiny, partial(small_vit, layers=1)], ids=["tiny", "vit"])
def test_grad_cam_ranges(make):
    graph, params, stats = drawn(make)
    explain = jit(partial(grad_cam, graph))
    heat = explain(params, stats, pictures(), LABELS)
    assert heat.shape == (4, 16, 16)
    assert (heat >= 0).all() and (heat <= 1).all()
    largest = np.asarray(heat.max((1, 2)))
    assert (np.isclose(largest, 1) | (largest == 0)).all() and largest.max() > 0
    dead = jax.tree.map(jnp.zeros_like, params)
    nothing = explain(dead, stats, pictures(), LABELS)
    np.testing.assert_array_equal(nothing, np.zeros_like(nothing))


def test_the_map_moves_with_the_object():
    graph, params, stats = parts = drawn(tiny)
    # On an even ground far from the borders, a convolutional network sees the same thing elsewhere.
    spot = jax.random.uniform(jax.random.key(3), (6, 6, 3))
    images = jnp.full((2, 40, 40, 3), 0.5)
    images = images.at[0, 8:14, 8:14].set(spot).at[1, 24:30, 16:22].set(spot)
    label = logits_of(graph, params, stats, images)[0].argmax()
    for heat in (
        explained(parts, images, jnp.array([label, label])),
        np.asarray(
            jit(partial(relevance, graph))(params, stats, images, jnp.array([label, label]))
        ),
    ):
        # What stands out from the ground, whose own heat depends on the borders.
        excess = np.abs(heat - np.median(heat, axis=(1, 2), keepdims=True))[:, 4:-4, 4:-4]
        places = [np.unravel_index(one.argmax(), one.shape) for one in excess]
        assert np.abs(np.subtract(places[1], places[0]) - (16, 8)).max() <= 2


def test_preprocessing_and_choice_of_feature():
    parts, images, labels = drawn(tiny), pictures(2), jnp.array([0, 1])
    flip = partial(jnp.flip, axis=2)
    plain = explained(parts, flip(images), labels, feature="stage1")
    through = explained(parts, images, labels, feature="stage1", preprocess=flip)
    np.testing.assert_allclose(plain, through, atol=1e-6)
    with pytest.raises(ValueError, match=r"activation 'pre_logits'; choose one of stem, stage1"):
        explained(parts, images, labels, feature="pre_logits")
    with pytest.raises(ValueError, match="choose one of tokens, block0, block1"):
        explained(drawn(small_vit), images, labels, feature="attention0")
