"""Shapes, sizes, modes and errors of the models."""

import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from train import models
from train.models.layers import BatchNorm
from train.models.resnet import Bottleneck, CifarResNet, ResNet
from train.models.vit import VisionTransformer


def untrained(make: Callable[[], models.Classifier]) -> models.Classifier:
    """A model with arbitrary values; its own initialisers would take seconds to compile."""
    graph, state = nnx.split(nnx.eval_shape(make))
    random = np.random.default_rng(0)

    def draw(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        values = random.normal(float(len(leaf.shape) == 1), 0.1, leaf.shape)  # near 1: variances
        return jnp.asarray(values, leaf.dtype)

    return nnx.merge(graph, jax.tree.map(draw, state))


@pytest.fixture(autouse=True)
def strict_rank_promotion() -> Iterator[None]:
    with jax.numpy_rank_promotion("raise"):
        yield


def build(name: str, num_classes: int, image_size: int, **options: object) -> models.Classifier:
    return models.build(
        name, num_classes=num_classes, image_size=image_size, rngs=nnx.Rngs(0), **options
    )


def tiny(**options: object) -> models.Classifier:
    return untrained(lambda: build("_tiny", 3, 8, **options))


def tiny_vit(**options: object) -> models.Classifier:
    sizes = {"image_size": 8, "patch_size": 4, "hidden": 6, "layers": 2, "heads": 3, "mlp": 8}
    return untrained(lambda: VisionTransformer(num_classes=3, rngs=nnx.Rngs(0), **sizes, **options))


def run(model: models.Classifier, images: jax.Array, **options: object) -> tuple:
    """`apply`, compiled: faster than operation by operation."""
    graph, *state = nnx.split(model, nnx.Param, nnx.BatchStat)
    compiled = jax.jit(lambda images: models.apply(graph, *state, images, **options))
    return compiled(images)


def random_images(batch: int, size: int, channels: int = 3) -> jax.Array:
    shape = (batch, size, size, channels)
    return jnp.asarray(np.random.default_rng(1).uniform(size=shape), jnp.float32)


SHAPES = {
    ("resnet18", 32): {"stem": (32, 32, 64), "stage1": (32, 32, 64), "stage4": (4, 4, 512)},
    ("resnet18", 64): {"stem": (64, 64, 64), "stage4": (8, 8, 512)},
    ("resnet18", 224): {"stem": (56, 56, 64), "stage4": (7, 7, 512), "pre_logits": (512,)},
    ("resnet50", 224): {"stem": (56, 56, 64), "stage1": (56, 56, 256), "stage4": (7, 7, 2048)},
    ("vit_tiny", 224): {"tokens": (197, 192), "block11": (197, 192), "attention0": (3, 197, 197)},
    ("vit_tiny", 32): {"tokens": (65, 192), "block0": (65, 192), "pre_logits": (192,)},
    ("resnet8", 32): {"stem": (32, 32, 16), "stage2": (16, 16, 32), "stage3": (8, 8, 64)},
    ("resnet20", 32): {"stage3": (8, 8, 64)},
    ("resnet32", 32): {"stage3": (8, 8, 64)},
    ("resnet44", 32): {"stage3": (8, 8, 64)},
    ("resnet56", 32): {"stage3": (8, 8, 64), "pre_logits": (64,)},
    ("_tiny", 32): {"stem": (32, 32, 8), "stage2": (16, 16, 16)},
}


@pytest.mark.parametrize(("name", "image_size"), SHAPES)
def test_shapes(name: str, image_size: int) -> None:
    def build_and_call(images: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        return build(name, 7, image_size)(images)

    images = jax.ShapeDtypeStruct((2, image_size, image_size, 3), jnp.float32)
    logits, features = jax.eval_shape(build_and_call, images)
    assert logits.shape == (2, 7)
    assert logits.dtype == jnp.float32
    for feature, shape in SHAPES[name, image_size].items():
        assert features[feature].shape == (2, *shape), feature


def test_every_public_name_has_a_shape_test() -> None:
    assert set(models.NAMES) == {name for name, _ in SHAPES if not name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "num_classes", "image_size", "published"),
    [
        ("resnet20", 10, 32, 269_722),
        ("resnet32", 10, 32, 464_154),
        ("resnet44", 10, 32, 658_586),
        ("resnet56", 10, 32, 853_018),
        ("resnet18", 1000, 224, 11_689_512),
        ("resnet50", 1000, 224, 25_557_032),
        ("vit_tiny", 1000, 224, 5_717_416),
    ],
)
def test_parameter_counts_are_the_published(
    name: str, num_classes: int, image_size: int, published: int
) -> None:
    model = nnx.eval_shape(lambda: build(name, num_classes, image_size))
    parameters = jax.tree.leaves(nnx.state(model, nnx.Param))
    assert sum(math.prod(parameter.shape) for parameter in parameters) == published


def test_unknown_name_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"'resnet19'.*resnet18.*vit_tiny.*resnet20"):
        build("resnet19", 10, 32)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet20", {"patch_size": 4}, "no patches"),
        ("vit_tiny", {"stem": "3x3"}, "no choice of stem"),
        ("resnet18", {"stem": "5x5"}, "stem must be one of"),
        ("resnet8", {"mean": (0.5,)}, "both mean and std"),
        ("resnet8", {"mean": (0.5,), "std": (0.0,)}, "std above 0"),
        ("resnet8", {"mean": (0.5,) * 3, "std": (0.5,)}, "one number per channel"),
        ("vit_tiny", {"patch_size": 5}, "patch_size must divide image_size"),
        ("resnet8", {"dtype": jnp.int32}, "floating"),
    ],
)
def test_contradictory_options_fail(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, 10, 32, **options)


def test_nonsense_sizes_fail() -> None:
    with pytest.raises(ValueError, match="num_classes=0"):
        build("resnet8", 0, 32)
    with pytest.raises(ValueError, match="heads must divide hidden"):
        VisionTransformer(num_classes=2, image_size=8, patch_size=4, heads=5, rngs=nnx.Rngs(0))


def test_wrong_images_fail() -> None:
    model = tiny()
    with pytest.raises(ValueError, match=r"\[B, H, W, 3\]"):
        model(jnp.zeros((8, 8, 3)))
    with pytest.raises(ValueError, match=r"\[B, H, W, 3\]"):
        model(jnp.zeros((2, 8, 8, 1)))
    with pytest.raises(ValueError, match="floating pixels"):
        model(jnp.zeros((2, 8, 8, 3), jnp.uint8))
    with pytest.raises(ValueError, match="expected images of 8x8 pixels, got 12x12"):
        tiny_vit()(jnp.zeros((2, 12, 12, 3)))


def test_stem_can_be_chosen_and_resnet50_keeps_the_large_one() -> None:
    kernels = {
        (name, stem): nnx.eval_shape(lambda n=name, s=stem: build(n, 2, 32, stem=s)).conv1.kernel
        for name in ("resnet18", "resnet50")
        for stem in (None, "3x3", "7x7")
    }
    assert {key: kernel.shape[0] for key, kernel in kernels.items()} == {
        ("resnet18", None): 3,
        ("resnet18", "3x3"): 3,
        ("resnet18", "7x7"): 7,
        ("resnet50", None): 7,
        ("resnet50", "3x3"): 3,
        ("resnet50", "7x7"): 7,
    }


def test_mean_and_std_are_the_models_own_and_not_state() -> None:
    model = tiny(mean=(0.2,), std=(0.4,))
    images = random_images(2, 8, channels=1)
    np.testing.assert_allclose(model.normalise(images), (images - 0.2) / 0.4, rtol=1e-6)
    assert run(model, images, train=False)[0].shape == (2, 3)
    kinds = {type(leaf) for _, leaf in nnx.to_flat_state(nnx.state(model))}
    assert kinds == {nnx.Param, nnx.BatchStat}
    assert nnx.eval_shape(lambda: build("vit_tiny", 3, 32)).mean == (0.5, 0.5, 0.5)
    assert nnx.eval_shape(lambda: build("resnet8", 3, 32)).std == (0.229, 0.224, 0.225)


def test_batch_norm_matches_its_definition() -> None:
    norm = BatchNorm(4, dtype=jnp.float32)
    x = random_images(3, 5, channels=4) * 4 + 100  # a far mean: nothing may cancel
    y = norm(x, train=True)
    flat = np.asarray(x, np.float64).reshape(-1, 4)
    expected = (flat - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5)
    np.testing.assert_allclose(y.reshape(-1, 4), expected, atol=2e-4)
    np.testing.assert_allclose(norm.mean[...], 0.1 * flat.mean(0), rtol=1e-5)
    np.testing.assert_allclose(norm.var[...], 0.9 + 0.1 * flat.var(0, ddof=1), rtol=1e-4)


def test_batch_norm_survives_a_single_value_per_channel() -> None:
    norm = BatchNorm(2, dtype=jnp.float32)
    assert np.isfinite(norm(jnp.ones((1, 1, 1, 2)), train=True)).all()
    assert np.isfinite(norm.var[...]).all()


def test_pure_jitted_step_trains_and_moves_statistics() -> None:
    rngs = nnx.Rngs(jax.random.key(0, impl="rbg"))  # compiles faster than the default
    model = models.build("_tiny", num_classes=2, image_size=8, rngs=rngs)
    graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)
    images = random_images(8, 8)
    labels = jnp.arange(8) % 2

    @jax.jit
    def step(params: nnx.State, stats: nnx.State) -> tuple[nnx.State, nnx.State, jax.Array]:
        def loss(params: nnx.State) -> tuple[jax.Array, nnx.State]:
            logits, _, new_stats = models.apply(graph, params, stats, images, train=True)
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
            return -chosen.mean(), new_stats

        (value, new_stats), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), new_stats, value

    first_stats, losses = stats, []
    for _ in range(20):
        params, stats, value = step(params, stats)
        losses.append(float(value))
    assert step._cache_size() == 1  # the new state has the structure of the old
    assert losses[-1] < 0.5 * losses[0]
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), first_stats, stats)
    assert all(jax.tree.leaves(moved))


def test_evaluation_leaves_statistics_and_treats_images_one_by_one() -> None:
    model = tiny()
    images = random_images(4, 8)
    together, _, stats = run(model, images, train=False)
    alone, *_ = run(model, images[:1], train=False)
    np.testing.assert_allclose(alone, together[:1], rtol=1e-4, atol=1e-5)
    same = jax.tree.map(lambda a, b: bool((a == b).all()), stats, nnx.state(model, nnx.BatchStat))
    assert all(jax.tree.leaves(same))


@pytest.mark.parametrize("make", [tiny, tiny_vit])
def test_bfloat16_computes_low_and_keeps_float32(make: Callable) -> None:
    images = random_images(4, 8)
    model = make(dtype=jnp.bfloat16)
    logits, features, _ = run(model, images, train=True)
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model))} == {jnp.dtype("float32")}
    assert logits.dtype == jnp.float32
    assert features["pre_logits"].dtype == jnp.float32
    last = "block1" if isinstance(model, VisionTransformer) else "stage2"
    assert features[last].dtype == jnp.bfloat16
    np.testing.assert_allclose(logits, run(make(), images, train=True)[0], atol=0.05)


@pytest.mark.parametrize(("make", "name"), [(tiny, "stage2"), (tiny_vit, "attention1")])
def test_gradient_of_an_offset_is_that_of_the_activation(make: Callable, name: str) -> None:
    model = make()
    images = random_images(2, 8)
    graph, *state = nnx.split(model, nnx.Param, nnx.BatchStat)

    @jax.value_and_grad
    def score(offset: jax.Array) -> jax.Array:
        logits, *_ = models.apply(graph, *state, images, train=False, offsets={name: offset})
        return logits[:, 0].sum()

    score = jax.jit(score)
    shape = run(model, images, train=False)[1][name].shape
    _, gradient = score(jnp.zeros(shape))
    direction = jnp.asarray(np.random.default_rng(2).normal(0, 1e-2, shape), jnp.float32)
    change = score(direction)[0] - score(-direction)[0]
    np.testing.assert_allclose(change, 2 * jnp.vdot(gradient, direction), rtol=2e-2, atol=1e-5)


def test_wrong_offsets_fail() -> None:
    images = random_images(1, 8)
    with pytest.raises(ValueError, match=r"\['stage9'\].*stage1"):
        run(tiny(), images, train=False, offsets={"stage9": jnp.zeros(1)})
    with pytest.raises(ValueError, match=r"expected shape \(1, 8, 8, 8\)"):
        run(tiny(), images, train=False, offsets={"stage1": jnp.zeros(1)})


def test_head_reads_the_recorded_features() -> None:
    model = tiny()
    logits, features, _ = run(model, random_images(2, 8), train=False)
    np.testing.assert_allclose(features["stage2"].mean((1, 2)), features["pre_logits"], rtol=1e-5)
    np.testing.assert_allclose(model.head(features["pre_logits"]), logits, rtol=1e-5)


def test_shortcuts_of_the_two_families() -> None:
    sizes = {"num_classes": 2, "image_size": 8, "blocks": (1, 1)}
    thin = untrained(lambda: CifarResNet(width=4, rngs=nnx.Rngs(0), **sizes))
    x = jnp.arange(1.0, 65.0).reshape(1, 4, 4, 4)
    skipped = thin.stages[1][0].skip(x, False)  # [1, 2, 2, 8]
    np.testing.assert_array_equal(skipped[..., 2:6], x[:, ::2, ::2])
    assert not skipped[..., :2].any()
    assert not skipped[..., 6:].any()
    wide = untrained(lambda: ResNet(block=Bottleneck, width=2, rngs=nnx.Rngs(0), **sizes))
    assert [len(stage[0].downsample) for stage in wide.stages] == [2, 2]


def test_batch_sharded_statistics_are_global() -> None:
    # Trivial on one device; with more, every shard must see the statistics of the whole batch.
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), (jax.sharding.AxisType.Auto,))
    images = random_images(2 * jax.device_count(), 8)
    sharded = jax.device_put(images, jax.NamedSharding(mesh, jax.P("batch")))
    plain, split = (run(tiny(), x, train=True) for x in (images, sharded))
    for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(split), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)
