import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jax.test_util import check_grads

import isvs


def speckled(shape, share=0.25):
    """A slope with steps, and pixels of any value strewn over each channel."""
    generator = np.random.default_rng(0)
    height, width, channels = shape[-3:]
    slope = np.add.outer(np.linspace(0, 0.4, height), np.linspace(0.2, 0.5, width) // 0.1 / 10)
    images = np.broadcast_to(np.repeat(slope[..., None], channels, -1), shape).astype(np.float32)
    strewn = generator.random(shape) < share
    return np.where(strewn, generator.random(shape, np.float32), images)


def flat_with(spots):
    """A flat grey image with some white pixels."""
    image = np.full((12, 12, 1), 0.5, np.float32)
    for at in spots:
        image[at] = 1
    return image


@pytest.mark.parametrize("area", [1, 2, 3])
def test_equals_flood_fill_and_loops(area):
    images = speckled((2, 9, 11, 3))
    cleaned = np.asarray(isvs.remove_speckle(images, isvs.Speckle(area=area, contrast=0.12)))
    removed = 0
    for b, c in np.ndindex(2, 3):
        expected, changed = oracles.despeckled(images[b, ..., c], area, 0.12)
        ours, before = cleaned[b, ..., c], images[b, ..., c]
        np.testing.assert_allclose(ours, expected, atol=1e-6)
        np.testing.assert_array_equal(ours[~changed], before[~changed])
        removed += changed.sum()
    assert removed > 20


def test_salt_and_pepper_go():
    clean = np.broadcast_to(np.linspace(0.3, 0.6, 32, dtype=np.float32)[:, None], (32, 32, 3))
    generator = np.random.default_rng(1)
    strewn = generator.random((32, 32, 3)) < 0.04
    noisy = np.where(strewn, generator.integers(0, 2, (32, 32, 3)), clean).astype(np.float32)
    cleaned = np.asarray(isvs.remove_speckle(noisy))
    # Three in a row are no speckle by default, and here and there they meet.
    assert np.mean(np.abs(cleaned - clean)[strewn] > 0.02) < 0.05
    np.testing.assert_array_equal(cleaned[~strewn], clean[~strewn])


@pytest.mark.parametrize("area", [1, 2, 3])
def test_thin_lines_stay_and_shorter_ones_go(area):
    line = [(4, 2 + n) for n in range(area + 1)]
    for turn in (lambda x: x, lambda x: x.swapaxes(0, 1)):
        longer = turn(flat_with(line))
        np.testing.assert_array_equal(isvs.remove_speckle(longer, isvs.Speckle(area)), longer)
        shorter = turn(flat_with(line[1:]))
        assert bool((isvs.remove_speckle(shorter, isvs.Speckle(area)) == 0.5).all())


def test_spots_at_the_border_take_what_is_beside_them():
    image = flat_with([(0, 0), (0, 3), (11, 2), (5, 11), (11, 11), (10, 11)])
    assert bool((isvs.remove_speckle(image, isvs.Speckle(2)) == 0.5).all())


def test_a_spot_with_nothing_but_speckle_around_it_stays():
    image = flat_with([])
    # A chessboard, of which the last column has the grey beside it and the others have not.
    image[:, :3] = np.indices((12, 3)).sum(0)[..., None] % 2
    cleaned = np.asarray(isvs.remove_speckle(image, isvs.Speckle(2)))
    np.testing.assert_array_equal(cleaned[:, :2], image[:, :2])
    assert (cleaned[:, 2:] == 0.5).all()


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 2, 1), (2, 2, 1), (0, 4, 4, 3)], ids=str)
def test_all_speckle_stays(shape):
    image = np.zeros(shape, np.float32)
    image[..., 0, 0, :] = 1
    image[..., -1, -1, :] = 1
    image[..., :1, -1:, :] = 0
    np.testing.assert_array_equal(isvs.remove_speckle(image, isvs.Speckle(area=1)), image)


def test_channels_are_separate():
    image = np.full((32, 32, 3), 0.5, np.float32)
    image[3, 3] = [1.0, 0.6, 0.0]
    cleaned = np.asarray(isvs.remove_speckle(image))
    np.testing.assert_array_equal(cleaned[3, 3], np.float32([0.5, 0.6, 0.5]))
    swapped = isvs.remove_speckle(image[..., ::-1])
    np.testing.assert_array_equal(swapped, cleaned[..., ::-1])


def test_jit_eager_and_vmap_agree():
    images = speckled((2, 9, 11, 3))
    found = jax.jit(jax.vmap(isvs.remove_speckle))(images)
    np.testing.assert_allclose(found, isvs.remove_speckle(images), atol=1e-6)


def test_half_precision_stays():
    cleaned = isvs.remove_speckle(jnp.asarray(flat_with([(2, 2), (11, 11)]), jnp.bfloat16))
    assert cleaned.dtype == jnp.bfloat16
    assert bool((cleaned == 0.5).all())


def test_gradient_equals_finite_differences():
    with jax.enable_x64(True):
        image = jnp.asarray(speckled((5, 6, 2)), jnp.float64)
        assert bool((isvs.remove_speckle(image) != image).any())
        check_grads(isvs.remove_speckle, (image,), order=1, eps=1e-6)


def test_bad_input_is_explained():
    image = jnp.zeros((4, 4, 1))
    for value, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"area must be .*got"):
            isvs.Speckle(area=value)
    for value in (0.0, -0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="contrast must be above 0 and finite, got"):
            isvs.Speckle(contrast=value)
    with pytest.raises(TypeError, match=r"speckle must be isvs.Speckle\(...\) or None, got 2"):
        isvs.remove_speckle(image, 2)
    with pytest.raises(TypeError, match=r"speckle must be isvs.Speckle\(...\) or None, got True"):
        isvs.smooth(image, speckle=True)
    with pytest.raises(ValueError, match="at least 3 axes"):
        isvs.remove_speckle(image[..., 0])
