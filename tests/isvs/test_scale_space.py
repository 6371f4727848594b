import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import isvs

LEVELS = np.linspace(0, 1, 21).astype(np.float32)


@pytest.fixture(scope="module")
def space(colour_photographs):
    return isvs.encode(colour_photographs)


def share(support):
    down, right = support
    return (down.sum((-2, -1)) + right.sum((-2, -1))) / (31 * 32 * 2)


def flat_share(images):
    down = (np.diff(images, axis=-3) == 0).all(-1).sum((-2, -1))
    right = (np.diff(images, axis=-2) == 0).all(-1).sum((-2, -1))
    return (down + right) / (31 * 32 * 2)


def test_levels_fit_a_byte(space):
    assert space.down.dtype == space.right.dtype == jnp.uint8
    assert space.down.shape == (8, 31, 32)
    assert space.right.shape == (8, 32, 31)
    assert int(space.down.min()) >= 1


def test_it_is_shown_in_a_line(space):
    expected = (
        "ScaleSpace(images=float32[8, 32, 32, 3], down=uint8[8, 31, 32], right=uint8[8, 32, 31])"
    )
    assert repr(space) == expected
    assert repr(jax.tree.map(jnp.ndim, space)) == "ScaleSpace(images=4, down=3, right=3)"


def test_support_grows_with_the_level(space):
    supports = [space.support(level) for level in LEVELS]
    for (down, right), (next_down, next_right) in itertools.pairwise(supports):
        assert bool((down <= next_down).all())
        assert bool((right <= next_right).all())


def test_share_of_the_support_is_the_level(space, colour_photographs):
    most = 1 - flat_share(colour_photographs)
    for level in LEVELS[:-1]:
        expected = np.minimum(level, most)
        assert np.abs(share(space.support(level)) - expected).max() <= 1 / 255


def test_flat_edges_enter_only_at_the_end():
    image = np.zeros((32, 32, 3), np.float32)
    image[8:20, 8:20] = np.random.default_rng(0).random((12, 12, 3), np.float32)
    space = isvs.encode(image)
    most = 1 - flat_share(image)
    assert float(share(space.support(0.95))) == pytest.approx(float(most), abs=1 / 255)
    np.testing.assert_allclose(space.at(0.95), image, atol=1e-6)


def test_ends_of_the_path(space, colour_photographs):
    np.testing.assert_array_equal(space.at(1.0), colour_photographs)
    mean = colour_photographs.mean((1, 2), keepdims=True)
    np.testing.assert_allclose(
        space.at(0.0), np.broadcast_to(mean, colour_photographs.shape), atol=1e-5
    )


def test_variation_rises_with_the_level(space):
    variation = np.stack([oracles.total_variation(space.at(level)) for level in LEVELS])
    # Splitting a region can bring its parts nearer to others: a fall of half a percent occurs.
    assert (np.diff(variation, axis=0) >= -0.01 * variation[-1]).all()
    assert (np.diff(variation[::5], axis=0) > 0).all()
    assert (variation[12] < 0.97 * variation[-1]).all()


def test_at_is_the_projection_on_the_support(space, colour_photographs):
    down, right = (np.asarray(mask[0, :, :]) for mask in space.support(0.4))
    labels = oracles.scipy_labels(~down, ~right).ravel()
    pixels = colour_photographs[0].reshape(-1, 3).astype(np.float64)
    sums = np.stack([np.bincount(labels, pixels[:, c], 1024) for c in range(3)], -1)
    means = sums[labels] / np.bincount(labels, minlength=1024)[labels][:, None]
    np.testing.assert_allclose(space.at(0.4)[0].reshape(-1, 3), means, atol=1e-6)


@pytest.mark.parametrize("components", [None, "scan"])
def test_regions_are_what_ties_connect(space, components):
    levels = np.linspace(0, 1, 8).astype(np.float32)
    regions = space.regions(levels, components=components)
    down, right = (np.asarray(mask) for mask in space.support(levels))
    for i in range(8):
        np.testing.assert_array_equal(regions[i], oracles.scipy_labels(~down[i], ~right[i]))


@pytest.mark.parametrize("components", ["hook", "scan"])
def test_at_is_idempotent(space, components):
    once = space.at(0.5, components=components)
    again = isvs.ScaleSpace(once, space.down, space.right).at(0.5, components=components)
    np.testing.assert_allclose(again, once, atol=1e-5)


def test_one_level_for_each_image(space):
    levels = np.linspace(0.1, 0.9, 8).astype(np.float32)
    together = space.at(levels)
    for i in (0, 3, 7):
        alone = jax.tree.map(lambda a, i=i: a[i], space).at(float(levels[i]))
        np.testing.assert_allclose(together[i], alone, atol=1e-6)


@pytest.mark.parametrize(
    "shape", [(1, 1, 3), (1, 9, 1), (9, 1, 3), (2, 3, 4, 5, 2), (0, 6, 6, 3)], ids=str
)
def test_any_shape(shape):
    images = np.random.default_rng(0).random(shape, np.float32)
    space = isvs.encode(images)
    assert space.at(0.5).shape == shape
    np.testing.assert_array_equal(space.at(1.0), images)


@pytest.mark.parametrize("blocks", [1, 3, 5])
def test_blocks_do_not_change_the_result(space, colour_photographs, blocks):
    solver = isvs.Flow(block_pixels=8 * 1024 // blocks)
    again = isvs.encode(colour_photographs, solver=solver)
    assert np.mean(np.asarray(again.down) != space.down) < 1e-3
    assert np.mean(np.asarray(again.right) != space.right) < 1e-3
