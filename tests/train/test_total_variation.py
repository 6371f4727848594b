import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import isvs
from train.models.smoothing_layers import ScaleSpaceSmoothing, TotalVariation
from train.models.total_variation import prox_tv_1d, prox_tv_2d
from train.optimizer import kernels


def loss(x, strength):
    return jnp.sum(prox_tv_2d(x, strength) ** 2)


# Compiled once for each shape, and most tests have the same: compiling is what takes time here.
SOLVE_1D = jax.jit(prox_tv_1d)
SOLVE_2D = jax.jit(prox_tv_2d, static_argnames="alternations")
LOSS = jax.jit(jax.value_and_grad(loss, (0, 1)))


def for_all_channels(strength):
    return np.full(3, strength, np.float32)


def smoothed(images, strength):
    return np.asarray(SOLVE_2D(images, for_all_channels(strength)))


def differences(height, width):
    """Every neighbouring pair of an image as a row with -1 and 1."""
    index = np.arange(height * width).reshape(height, width)
    pairs = [*zip(index[:-1].flat, index[1:].flat, strict=True)]
    pairs += zip(index[:, :-1].flat, index[:, 1:].flat, strict=True)
    rows = np.zeros((len(pairs), height * width))
    for row, (first, second) in zip(rows, pairs, strict=True):
        row[first], row[second] = -1, 1
    return rows


def slow_prox(image, strength):
    """The dual problem, min ||x - D^T u|| with |u| <= strength, by SciPy's active set method."""
    x = np.asarray(image, np.float64)
    rows = differences(*x.shape)
    if strength == 0 or len(rows) == 0:
        return x
    bounds = (-strength, strength)
    dual = scipy.optimize.lsq_linear(rows.T, x.ravel(), bounds, method="bvls", tol=1e-14).x
    return x - (rows.T @ dual).reshape(x.shape)


def variation(images):
    images = np.asarray(images, np.float64)
    return np.abs(np.diff(images)).sum((-2, -1)) + np.abs(np.diff(images, axis=-2)).sum((-2, -1))


@pytest.fixture(scope="module")
def images():
    """Feature-like maps [8, 3, 8, 10]: shapes, noise, and zeros as a ReLU leaves them."""
    generator = np.random.default_rng(0)
    shapes = np.kron(generator.normal(size=(8, 3, 2, 2)), np.ones((4, 5)))
    noisy = shapes + 0.5 * generator.normal(size=shapes.shape)
    return np.maximum(noisy, -0.3).astype(np.float32)


@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_lines_match_an_active_set_method(length):
    generator = np.random.default_rng(length)
    lines = generator.normal(size=(6, length)).astype(np.float32)
    lines[1] = np.round(lines[1])  # ties
    lines[2] = 1.5  # constant
    lines[3] = np.arange(length) % 2
    lines[4] += 1000 * np.arange(length)
    for strength in (0.0, 0.05, 0.5, 1.0, 100.0):
        ours = SOLVE_1D(lines, strength)
        for line, y in zip(lines, ours, strict=True):
            scale = max(1, np.abs(line).max())
            np.testing.assert_allclose(y, slow_prox(line[None], strength)[0], atol=1e-5 * scale)


def test_lines_match_every_pattern_of_jumps():
    # Whatever the jumps, the candidate with the right ones is the solution: the best of them all.
    x = np.random.default_rng(3).normal(size=5)
    strength = 0.4
    candidates = []
    for jumps in itertools.product((-1, 0, 1), repeat=4):
        y = x + strength * np.diff([0, *jumps, 0])
        for part in np.split(np.arange(5), np.flatnonzero(jumps) + 1):
            y[part] = y[part].mean()
        candidates.append(y)
    costs = [((y - x) ** 2).sum() / 2 + strength * np.abs(np.diff(y)).sum() for y in candidates]
    best = candidates[int(np.argmin(costs))]
    ours = SOLVE_1D(np.tile(x.astype(np.float32), (6, 1)), strength)
    np.testing.assert_allclose(ours[0], best, atol=1e-6)


@pytest.mark.parametrize(("strength", "scale"), [(0.1, 1.0), (1.0, 1.0), (4.0, 1.0), (3e3, 1e3)])
def test_lines_meet_the_conditions_of_optimality(strength, scale):
    x = scale * np.random.default_rng(5).normal(size=(500, 37)).astype(np.float32)
    y = np.asarray(SOLVE_1D(x, strength), np.float64)
    dual = np.cumsum(y - x, axis=-1)
    np.testing.assert_allclose(dual[:, -1], 0, atol=1e-4 * scale)  # every line keeps its mean
    tolerance = 2e-5 * scale
    assert np.abs(dual).max() <= strength + tolerance
    jumps = np.diff(y)
    at_jumps = np.abs(jumps) > tolerance
    assert 0.02 < at_jumps.mean() < 0.98
    np.testing.assert_allclose(
        dual[:, :-1][at_jumps], strength * np.sign(jumps[at_jumps]), atol=tolerance
    )


def test_strength_zero_is_the_identity_and_a_large_one_the_mean(images):
    assert (np.asarray(SOLVE_1D(images, 0.0)) == images).all()
    assert (smoothed(images, 0.0) == images).all()
    mean = np.broadcast_to(images.mean(-1, keepdims=True), images.shape)
    np.testing.assert_allclose(SOLVE_1D(images, 1e6), mean, atol=1e-5)
    mean = np.broadcast_to(images.mean((-2, -1), keepdims=True), images.shape)
    np.testing.assert_allclose(smoothed(images, 1e6), mean, atol=1e-5)
    # Equal neighbours are not tied at strength 0: the gradient is the identity's.
    _, (by_x, _) = LOSS(np.round(images), for_all_channels(0))
    np.testing.assert_array_equal(by_x, 2 * np.round(images))


def test_many_alternations_match_an_active_set_method(images):
    maps = images[:3, 0, :6, 2:7]
    strengths = np.array([0.1, 0.4, 1.5], np.float32)
    exact = np.stack([slow_prox(x, strength) for x, strength in zip(maps, strengths, strict=True)])
    many = SOLVE_2D(maps, strengths, alternations=300)
    np.testing.assert_allclose(many, exact, atol=2e-5)
    few = np.abs(SOLVE_2D(maps, strengths, alternations=4) - exact).max()
    assert 1e-3 < few < 0.2  # four alternations are near, and not there


def test_variation_falls_with_the_strength_and_the_mean_stays(images):
    strengths = (0.05, 0.2, 0.5, 1.0)
    solutions = [smoothed(images, strength) for strength in strengths]
    falling = np.stack([variation(y) for y in (images, *solutions)])
    assert (np.diff(falling, axis=0) < 0).all()
    for y in solutions:
        np.testing.assert_allclose(y.mean((-2, -1)), images.mean((-2, -1)), atol=1e-5)


def test_a_strength_for_each_channel(images):
    strengths = np.array([0.0, 0.2, 1.0], np.float32)
    together = SOLVE_2D(images, strengths)
    for channel, strength in enumerate(strengths):
        alone = smoothed(images, strength)
        np.testing.assert_allclose(together[:, channel], alone[:, channel], atol=1e-6)


@pytest.mark.parametrize("axes", ["lines", "planes"])
def test_gradients_match_finite_differences(axes):
    solve = {
        "lines": lambda x, s: prox_tv_1d(x, s[:, None]),
        "planes": lambda x, s: prox_tv_2d(x, s, alternations=3),
    }[axes]
    generator = np.random.default_rng(11)
    x, strength, step, count = generator.normal(size=(5, 6)), 0.35, 1e-6, 40
    weights = generator.normal(size=x.shape)
    directions = generator.normal(size=(count, *x.shape))
    directions[0] = 0  # this one moves the strength alone
    slopes = generator.normal(size=count)

    def scores(x, strengths):
        each = jnp.sum(weights * solve(x, strengths), axis=(1, 2))
        return each.sum(), each

    with jax.enable_x64(True):
        # One compilation: each direction forwards and backwards, and the point itself at the end.
        moves = step * np.concatenate([np.ones(count), -np.ones(count), np.zeros(1)])
        some = np.concatenate([directions, directions, directions[:1]])
        points = x + moves[:, None, None] * some
        strengths = strength + moves * np.concatenate([slopes, slopes, slopes[:1]])
        both = jax.jit(jax.value_and_grad(scores, (0, 1), has_aux=True))
        (_, values), (by_x, by_strength) = both(points, strengths)
        values = np.asarray(values)
        exact = np.tensordot(directions, np.asarray(by_x[-1]), 2) + slopes * float(by_strength[-1])
    measured = (values[:count] - values[count : 2 * count]) / (2 * step)
    assert np.abs(exact).min() > 1e-3
    np.testing.assert_allclose(exact, measured, rtol=1e-6, atol=1e-7)


def test_gradients_are_finite_at_kinks(images):
    ties = np.round(images)
    for strength in (0.0, 0.5, 1.0):
        leaves = jax.tree.leaves(LOSS(ties, for_all_channels(strength)))
        assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_vmap_and_shards_agree(images):
    strength = np.array([0.1, 0.3, 0.9], np.float32)
    plain = LOSS(images, strength)
    values, (by_x, by_strength) = jax.vmap(LOSS, (0, None))(images, strength)
    one_by_one = (values.sum(), (by_x, by_strength.sum(0)))
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    spread = jax.device_put(images, NamedSharding(mesh, PartitionSpec("batch")))
    strength = jax.device_put(strength, NamedSharding(mesh, PartitionSpec()))
    compiled = LOSS.lower(spread, strength).compile()
    assert "all-gather" not in compiled.as_text()
    assert "all-to-all" not in compiled.as_text()
    for other in (one_by_one, compiled(spread, strength)):
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_shard_map_accepts_loops_and_gradient(images):
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    batch, whole = PartitionSpec("batch"), PartitionSpec()
    gradient = jax.shard_map(
        jax.grad(loss, (0, 1)), mesh=mesh, in_specs=(batch, whole), out_specs=(batch, whole)
    )
    by_x, by_strength = jax.eval_shape(gradient, images, for_all_channels(0.2))
    assert (by_x.shape, by_strength.shape) == (images.shape, (3,))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_lowers_for_accelerators(platform):
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 3, 8, 8), (3,))]
    exported = jax.export.export(LOSS, platforms=[platform])(*shapes)
    assert "custom_call" not in exported.mlir_module()
    assert "stablehlo.gather" not in exported.mlir_module()


def test_the_backward_pass_keeps_signs_and_no_values(images):
    strength = for_all_channels(0.2)

    def kept(alternations):
        def pull_back(x, s):
            return jax.vjp(lambda x, s: prox_tv_2d(x, s, alternations=alternations), x, s)[1]

        leaves = jax.tree.leaves(jax.eval_shape(pull_back, jnp.asarray(images), strength))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

    # A byte for each edge: two for each pixel and alternation, and nothing else that grows.
    assert images.size < kept(5) - kept(4) <= 2 * images.size
    # Nor is anything larger than the images made on the way, such as the bounds of all windows.
    text = str(jax.make_jaxpr(LOSS)(images, strength))
    shapes = re.findall(r"f32\[([\d,]+)\]", text)
    assert max(np.prod([int(n) for n in shape.split(",")]) for shape in shapes) == images.size


def test_half_precision_is_solved_in_single(images):
    halves = jnp.asarray(images, jnp.bfloat16)
    ours = SOLVE_1D(halves, 0.3)
    assert ours.dtype == jnp.bfloat16
    assert (ours == SOLVE_1D(halves.astype(jnp.float32), 0.3).astype(jnp.bfloat16)).all()


def test_bad_input_is_explained():
    with pytest.raises(ValueError, match=r"strength must be at least 0 and finite, got -1"):
        prox_tv_1d(jnp.zeros(4), -1)
    with pytest.raises(ValueError, match=r"broadcast to the leading axes \(2,\)"):
        prox_tv_2d(jnp.zeros((2, 4, 4)), jnp.zeros(3))
    with pytest.raises(ValueError, match="at least one position"):
        prox_tv_1d(jnp.zeros((3, 0)), 1.0)
    with pytest.raises(TypeError, match="int32"):
        prox_tv_1d(jnp.zeros(4, jnp.int32), 1.0)
    with pytest.raises(ValueError, match="alternations"):
        prox_tv_2d(jnp.zeros((4, 4)), 1.0, alternations=0)
    with pytest.raises(ValueError, match=r"'smooth', 'sharp'.*'soft'"):
        TotalVariation(3, form="soft")
    with pytest.raises(ValueError, match="initial_strength"):
        TotalVariation(3, initial_strength=0)
    with pytest.raises(ValueError, match=r"floating features \[B, H, W, 3\]"):
        TotalVariation(3)(jnp.zeros((1, 4, 4, 2)))
    with pytest.raises(ValueError, match=r"level must lie in \[0, 1\], got 2"):
        ScaleSpaceSmoothing(3, level=2)
    with pytest.raises(ValueError, match=r"strictly inside"):
        ScaleSpaceSmoothing(3, level=1, learned=True)
    with pytest.raises(ValueError, match="learns its level"):
        ScaleSpaceSmoothing(3, learned=True)(jnp.zeros((1, 4, 4, 3)), level=0.5)


@pytest.fixture(scope="module")
def features(images):
    return jnp.asarray(images.transpose(0, 2, 3, 1))  # [8, 8, 10, 3]


def as_function(layer):
    graph, params = nnx.split(layer, nnx.Param)
    return lambda params, x: nnx.merge(graph, params)(x), params


def test_smooth_and_sharp_are_twice_the_input_and_strengths_learn(features, images):
    apply, params = as_function(TotalVariation(3, initial_strength=0.3))
    sharp = jax.jit(TotalVariation(3, form="sharp", initial_strength=0.3))(features)

    @jax.jit
    @jax.value_and_grad
    def score(params, weights):
        return jnp.vdot(weights, apply(params, features))

    # With the expected result for weights, all of it must be right for the score to be its square.
    smooth = smoothed(images, 0.3).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(smooth + sharp, 2 * features, atol=1e-5)
    value, gradient = score(params, smooth)
    assert float(value) == pytest.approx(np.vdot(smooth, smooth), rel=1e-5)
    # More strength takes from every channel's energy.
    assert (np.asarray(gradient["strength"][...]) < -1e-3).all()
    assert not any(jax.tree.leaves(kernels(nnx.to_pure_dict(params))))


def test_scale_space_layer_reads_levels(features):
    layer = ScaleSpaceSmoothing(3, level=0.4)

    @jax.jit
    def at(x, level):
        y, pull_back = jax.vjp(lambda x: layer(x, level=level), x)
        return y, pull_back(x)[0], pull_back(y)[0]

    assert (at(features, 1.0)[0] == features).all()
    mean = jnp.broadcast_to(features.mean((1, 2), keepdims=True), features.shape)
    np.testing.assert_allclose(at(features, 0.0)[0], mean, atol=1e-6)
    own = layer(features)
    assert float(jnp.abs(own - features).max()) > 0.01
    np.testing.assert_allclose(own, isvs.smooth(features, 0.4, solver=layer.solver), atol=1e-6)
    # The gradient takes the same means, and means of means are the same means.
    for result in at(features, 0.4):
        np.testing.assert_allclose(result, own, atol=1e-5)
    # Neither contrast nor offset of the features matters.
    np.testing.assert_allclose(at(1000 * features, 0.4)[0] / 1000, own, atol=1e-4)
    np.testing.assert_allclose(at(features - 5, 0.4)[0] + 5, own, atol=1e-4)


def test_a_learned_level_has_a_true_gradient_and_moves_without_jumps(features):
    apply, params = as_function(ScaleSpaceSmoothing(3, level=0.57, learned=True))
    assert not any(jax.tree.leaves(kernels(nnx.to_pure_dict(params))))
    own = float(params["level_logit"][...])
    assert jax.nn.sigmoid(own) == pytest.approx(0.57)
    weights = jax.random.normal(jax.random.key(1), features.shape)

    def score(params):
        y = apply(params, features)
        return jnp.vdot(weights, y), y

    both = jax.jit(jax.value_and_grad(score, has_aux=True))

    def near(logit):
        (value, y), gradient = both(jax.tree.map(lambda _: jnp.float32(logit), params))
        return float(value), float(gradient["level_logit"][...]), y

    step = 0.05  # stays between the same two levels of the grid
    for logit in (own, -1.5, 3.5):
        exact = near(logit)[1]
        estimate = (near(logit + step)[0] - near(logit - step)[0]) / (2 * step)
        assert abs(exact) > 1e-2
        assert exact == pytest.approx(estimate, rel=1e-2)
    knot = np.log(8 / 7)  # level 8 / 15
    at_knot = isvs.smooth(features, 8 / 15, solver=isvs.Flow(ratio=1.25))
    for logit in (knot - 1e-5, knot + 1e-5):
        np.testing.assert_allclose(near(logit)[2], at_knot, atol=1e-3)
