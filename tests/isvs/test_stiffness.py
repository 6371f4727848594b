"""Ties that give, and what `ScaleSpace.at` and `smooth` do with them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax.test_util import check_grads

import isvs
from isvs.stiffness import relax

MIXED = np.float32([0, 0.3, 5, 1000, np.inf, 2, np.inf, 40])
SOFT = np.where(np.isinf(MIXED), 1, MIXED)


def random_ties(shape):
    """Images [..., H, W, C], and which neighbours are tied."""
    *batch, height, width, _ = shape
    generator = np.random.default_rng(0)
    down = generator.random((*batch, height - 1, width)) < 0.7
    right = generator.random((*batch, height, width - 1)) < 0.7
    return generator.random(shape, np.float32), down, right


def tied_space(images, down, right):
    """A scale space whose support, at every level below 1, is what is not tied."""
    levels = (jnp.where(tied, 255, 1).astype(jnp.uint8) for tied in (down, right))
    return isvs.ScaleSpace(jnp.asarray(images), *levels)


# Of one shape for most tests: compiling is what takes time here.
@pytest.fixture(scope="module")
def space():
    return tied_space(*random_ties((8, 9, 8, 3)))


@jax.jit
def traced_at(space, stiffness):
    return space.at(0.5, stiffness=stiffness)


@pytest.mark.parametrize("size", [(7, 9, 3), (1, 10, 5), (10, 1, 1), (1, 1, 1)], ids=str)
def test_equals_a_dense_solve(size):
    images, down, right = random_ties((4, *size))
    stiffness = MIXED[:4]
    single = relax(images, down, right, stiffness)
    with jax.enable_x64(True):
        double = np.asarray(relax(images.astype(np.float64), down, right, stiffness))
    for i, mu in enumerate(stiffness):
        expected = oracles.dense_springs(images[i], down[i], right[i], mu)
        np.testing.assert_allclose(double[i], expected, atol=1e-10)
        # Rounding is that of a matrix with entries as large as mu.
        np.testing.assert_allclose(single[i], expected, atol=1e-6 + 5e-7 * mu)


def test_no_stiffness_is_the_image_bit_for_bit(space):
    for zero in (0, 0.0, np.zeros(8), jnp.zeros(8)):
        np.testing.assert_array_equal(space.at(0.5, stiffness=zero), space.images)


def test_what_is_not_tied_stays_bit_for_bit(space):
    np.testing.assert_array_equal(space.at(1.0, stiffness=MIXED), space.images)


def test_stiff_ties_tend_to_the_means(space):
    means = space.at(0.5)
    stiffness = (1.0, 30.0, 1000.0, 1e4)
    distances = [float(jnp.abs(space.at(0.5, stiffness=mu) - means).max()) for mu in stiffness]
    assert all(far > 2 * near for far, near in itertools.pairwise(distances)), distances
    assert distances[-1] < 4e-3


def test_soft_and_rigid_images_in_one_batch(space):
    expected = np.array(space.at(0.5, stiffness=SOFT))
    expected[np.isinf(MIXED)] = space.at(0.5)[np.isinf(MIXED)]
    np.testing.assert_array_equal(space.at(0.5, stiffness=MIXED), expected)
    np.testing.assert_array_equal(traced_at(space, MIXED), expected)
    rigid = traced_at(space, np.full(8, np.inf, np.float32))
    np.testing.assert_array_equal(rigid, space.at(0.5))


def test_an_image_does_not_depend_on_its_batchmates(space):
    together = space.at(0.5, stiffness=MIXED)
    order = np.array([3, 2, 0, 1, 5, 5, 4, 2])
    others = jax.tree.map(lambda a: a[order], space).at(0.5, stiffness=MIXED[order])
    np.testing.assert_array_equal(others, together[order])
    alone = jax.tree.map(lambda a: a[2], space).at(0.5, stiffness=5.0)
    np.testing.assert_array_equal(alone, together[2])


def test_stiffness_one_over_nu_is_the_iteration_s_own_u():
    """For one channel the iteration has, in its limit, (nu I + D_c^T D_c) u = nu x."""
    image = np.random.default_rng(3).random((6, 6, 1))
    *_, (u, z_down, z_right) = oracles.literal_lbi(image, 10_000, kappa=100.0, nu=2.0)
    down, right = (np.abs(z[..., 0]) <= 1 for z in (z_down, z_right))
    assert 0.3 < np.concatenate([down.ravel(), right.ravel()]).mean() < 0.7
    found = relax(image.astype(np.float32), down, right, np.float32(1 / 2.0))
    np.testing.assert_allclose(found, u, atol=1e-4)
    assert np.abs(oracles.dense_projection(image, down, right) - u).max() > 0.1


def test_jacobian_is_the_dense_inverse():
    image, down, right = random_ties((4, 5, 1))
    every_pixel = np.eye(20).reshape(4, 5, 20)
    expected = oracles.dense_springs(every_pixel, down, right, 5.0).reshape(20, 20)
    with jax.enable_x64(True):
        x = jnp.asarray(image, jnp.float64)
        forward, reverse = (
            np.asarray(jacobian(lambda x: relax(x, down, right, np.float64(5)))(x))
            for jacobian in (jax.jacfwd, jax.jacrev)
        )
    np.testing.assert_allclose(forward.reshape(20, 20), expected, atol=1e-10)
    np.testing.assert_allclose(reverse.reshape(20, 20), expected.T, atol=1e-10)


def test_gradients_equal_finite_differences():
    images, down, right = random_ties((2, 4, 5, 2))
    with jax.enable_x64(True):
        arguments = jnp.asarray(images, jnp.float64), jnp.array([0.3, 20.0])
        check_grads(lambda x, mu: relax(x, down, right, mu), arguments, order=1, eps=1e-5)


def test_gradient_of_mixed_stiffness(space):
    weights = jax.random.normal(jax.random.key(0), space.images.shape)
    slope = jax.jit(jax.grad(lambda mu: jnp.vdot(weights, space.at(0.5, stiffness=mu))))(MIXED)
    assert bool(jnp.isfinite(slope).all())
    assert bool((slope[jnp.isinf(MIXED)] == 0).all())
    step = 0.125 * (np.arange(8) == 5)
    there, back = (space.at(0.5, stiffness=MIXED + change) for change in (step, -step))
    difference = float(jnp.vdot(weights, there - back)) / 0.25
    assert float(slope[5]) == pytest.approx(difference, rel=0.02)


def test_vmap_over_images_and_stiffness(space):
    together = space.at(0.5, stiffness=MIXED)
    mapped = jax.vmap(lambda s, mu: s.at(0.5, stiffness=mu))(space, jnp.array(MIXED))
    np.testing.assert_allclose(mapped, together, atol=1e-6)
    image, down, right = random_ties((4, 5, 1))
    many = jax.vmap(lambda mu: relax(image, down, right, mu))(SOFT)
    expected = [oracles.dense_springs(image, down, right, mu) for mu in SOFT]
    np.testing.assert_allclose(many, expected, atol=5e-4)


@pytest.mark.parametrize("axes", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_eight_devices_are_one(space, axes):
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(axes,))
    with jax.set_mesh(mesh):
        spread = jax.device_put((space, MIXED), NamedSharding(mesh, PartitionSpec("batch")))
        result = traced_at(*spread)
    np.testing.assert_allclose(result, space.at(0.5, stiffness=MIXED), atol=1e-6)
    assert result.sharding.spec[0] == "batch"


@pytest.mark.parametrize("inside", ["a constant", "an argument"])
def test_one_stiffness_for_all_under_shard_map(space, inside):
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    weights = jax.random.normal(jax.random.key(0), space.images.shape)

    def pull(space, weights, mu):
        mu = 5.0 if inside == "a constant" else mu

        def read(images):
            return isvs.ScaleSpace(images, space.down, space.right).at(0.5, stiffness=mu)

        values, back = jax.vjp(read, space.images)
        return values, back(weights)[0]

    split, whole = PartitionSpec("batch"), PartitionSpec()
    spread = jax.shard_map(pull, mesh=mesh, in_specs=(split, split, whole), out_specs=split)
    results = jax.jit(spread)(space, weights, jnp.float32(5))
    for ours, alone in zip(results, pull(space, weights, 5.0), strict=True):
        np.testing.assert_allclose(ours, alone, atol=5e-6)


def test_traced_stiffness_is_brought_into_its_range(space):
    """What cannot be seen to be wrong must not come out as something that looks right."""
    wild, tame = (
        traced_at(space, jnp.float32(mu))
        for mu in ([-1, 1e6, 1e9, -np.inf, np.inf, 2, 3e38, 0], [0, 1e4, 1e4, 0, np.inf, 2, 1e4, 0])
    )
    np.testing.assert_array_equal(wild, tame)
    unknown = traced_at(space, jnp.where(MIXED == 5, jnp.nan, MIXED))
    np.testing.assert_array_equal(jnp.isnan(unknown).all((1, 2, 3)), MIXED == 5)


def test_stiffness_is_as_precise_as_the_images():
    images, down, right = random_ties((5, 6, 2))
    with jax.enable_x64(True):
        found = tied_space(images.astype(np.float64), down, right).at(0.5, stiffness=0.1)
        expected = oracles.dense_springs(images, down, right, 0.1)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-11)


def test_what_is_not_a_number_stays_within_its_region(space):
    """As with the means."""
    spoilt = isvs.ScaleSpace(space.images.at[:, 4, 4].set(jnp.nan), space.down, space.right)
    for stiffness in (np.inf, 3.0):
        left = ~jnp.isnan(spoilt.at(0.5, stiffness=stiffness)).any(-1)
        labels = space.regions(0.5)
        np.testing.assert_array_equal(left, labels != labels[:, 4:5, 4:5])
        assert 0.02 < left.mean() < 1


def test_half_precision_solves_in_single(space):
    half = isvs.ScaleSpace(space.images.astype(jnp.bfloat16), space.down, space.right)
    single = isvs.ScaleSpace(half.images.astype(jnp.float32), space.down, space.right)
    found = half.at(0.5, stiffness=MIXED)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, single.at(0.5, stiffness=MIXED).astype(jnp.bfloat16))


def test_smooth_is_encode_and_at(colour_photographs):
    images = colour_photographs[:, 6:15, 8:16]
    space = isvs.encode(images)
    down, right = space.support(0.5)
    means = isvs.component_means(images, isvs.connected_components(~down, ~right))
    for rigid in ({}, {"stiffness": np.inf}, {"stiffness": np.full(8, np.inf)}):
        np.testing.assert_array_equal(space.at(0.5, **rigid), means)
    smoothed = isvs.smooth(images, 0.5, stiffness=MIXED)
    np.testing.assert_array_equal(smoothed, space.at(0.5, stiffness=MIXED))
    # `smooth` seeks the support without the speckle; a scale space has its support already.
    rule = isvs.Speckle(area=1, contrast=0.1)
    cleaned = isvs.remove_speckle(images, rule)
    assert bool((cleaned != images).any())
    smoothed = isvs.smooth(images, 0.5, stiffness=3.0, speckle=rule)
    np.testing.assert_array_equal(smoothed, isvs.smooth(cleaned, 0.5, stiffness=3.0))
    np.testing.assert_array_equal(
        space.at(0.5, stiffness=3.0, speckle=rule),
        isvs.ScaleSpace(cleaned, space.down, space.right).at(0.5, stiffness=3.0),
    )


def test_bad_stiffness_is_explained(space, monkeypatch):
    monkeypatch.delattr("isvs.smoothing.encode")  # the message comes before any work
    for wrong in (-1.0, float("nan"), 1e6, -np.inf, np.where(MIXED == 5, 2e4, MIXED)):
        with pytest.raises(ValueError, match=r"must lie in \[0, 10000\] or be infinite.*, got"):
            isvs.smooth(space.images, stiffness=wrong)
    with pytest.raises(ValueError, match=r"batch axes \(8,\) of the images, got shape \(2,\)"):
        isvs.smooth(space.images, stiffness=np.ones(2))
    for wrong in (True, "stiff", None, [1.0]):
        with pytest.raises(TypeError, match="stiffness must be a number or an array, got"):
            isvs.smooth(space.images, stiffness=wrong)
    with pytest.raises(ValueError, match=r"need solver=isvs.Flow\(...\), got isvs.LBI"):
        isvs.smooth(space.images, stiffness=1.0, solver=isvs.LBI())
