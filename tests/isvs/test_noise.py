import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from oracles import gaussian_noise, noise_by_sorting

import isvs
from isvs.noise import _median


def ramp(size, channels):
    """Smooth in both directions, and not by the same law in every channel."""
    along = np.linspace(0, 1, size, dtype=np.float32)
    bends = np.linspace(0.5, 2, channels, dtype=np.float32)
    return np.multiply.outer(along, along)[..., None] ** bends


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 8])
def test_finds_the_noise_that_was_added(channels):
    clean = np.stack([np.full((128, 128, channels), 0.5, np.float32), ramp(128, channels)])
    for sigma in (0.02, 0.1):
        found = isvs.noise_level(clean + gaussian_noise(sigma, clean.shape))
        np.testing.assert_allclose(found, sigma, rtol=0.04)


@pytest.mark.parametrize("shape", [(9, 7, 3), (8, 8, 2), (2, 2, 1), (6, 11, 5)], ids=str)
def test_equals_sorting(shape):
    image = ramp(16, shape[-1])[: shape[0], : shape[1]] + gaussian_noise(0.05, shape)
    assert float(isvs.noise_level(image)) == pytest.approx(noise_by_sorting(image), rel=1e-5)


@pytest.mark.parametrize("size", [(6, 6), (7, 6), (5, 5)], ids=str)
def test_lower_median_is_exact(size):
    """In multiples of 1/256 every difference of a grey image is exact, and so is their median."""
    generator = np.random.default_rng(1)
    images = (generator.integers(0, 64, (20, *size, 1)) / 256).astype(np.float32)
    scale = isvs.noise_level(np.float32([[[0], [0]], [[0], [2]]]))  # a single difference of 1
    expected = [
        np.sort(np.abs(np.diff(np.diff(image[..., 0], axis=0), axis=1)).ravel())
        for image in images.astype(np.float64)
    ]
    middle = np.float32([values[(len(values) - 1) // 2] / 2 for values in expected])
    np.testing.assert_allclose(isvs.noise_level(images), middle * scale, rtol=2e-7)


@pytest.mark.parametrize("count", [1, 2, 101])
def test_median_of_any_values(count):
    generator = np.random.default_rng(2)
    medians = jax.jit(jax.vmap(_median))
    few = generator.choice(np.float32([0, 1e-30, 1e-3, 0.5, 1, 3e30]), (50, count))
    many = generator.random((50, count), np.float32)
    for values in (few, many, np.zeros((50, count), np.float32)):
        lower = np.sort(values, axis=-1)[:, (count - 1) // 2]
        np.testing.assert_array_equal(medians(values), lower)


def test_brightness_and_flips_do_not_matter_and_contrast_scales():
    image = ramp(24, 3) + gaussian_noise(0.05, (24, 24, 3))
    turned = [image, image + 0.25, image[::-1], image[:, ::-1], image.swapaxes(0, 1), 1 - image]
    found = np.asarray(isvs.noise_level(np.stack(turned)))
    np.testing.assert_allclose(found, found[0], rtol=2e-5)
    scaled = isvs.noise_level(np.stack([0.5 * image, 0.3 * image, 7 * image]))
    np.testing.assert_allclose(scaled, found[0] * np.float32([0.5, 0.3, 7]), rtol=2e-5)


def test_no_noise_where_there_is_nothing_to_compare():
    for shape in ((1, 9, 3), (9, 1, 1), (1, 1, 2), (2, 3, 1, 5, 3)):
        found = isvs.noise_level(gaussian_noise(0.1, shape))
        assert found.shape == shape[:-3]
        assert bool((found == 0).all())
    assert isvs.noise_level(jnp.zeros((0, 4, 4, 3))).shape == (0,)


def test_noise_of_all_channels_alike_is_not_seen():
    grey = 0.5 + gaussian_noise(0.1, (32, 32, 1))
    assert float(isvs.noise_level(np.repeat(grey, 3, axis=-1))) < 1e-6
    assert float(isvs.noise_level(grey)) == pytest.approx(0.1, rel=0.1)


def test_edges_and_impulses_hardly_matter():
    image = 0.3 + gaussian_noise(0.05, (64, 64, 3))
    image[20:40, 30:] += np.float32([0.5, 0.1, 0.3])
    image[::9, ::9] = [1, 0, 1]
    assert float(isvs.noise_level(image)) == pytest.approx(0.05, rel=0.1)


def test_what_is_not_a_number_does_not_count():
    image = 0.5 + gaussian_noise(0.05, (24, 24, 3))
    spoilt = image.copy()
    spoilt[15:] = np.nan
    np.testing.assert_allclose(isvs.noise_level(spoilt), isvs.noise_level(image[:15]), rtol=1e-6)
    assert np.isnan(isvs.noise_level(np.full((4, 4, 3), np.nan, np.float32)))


def test_jit_vmap_and_half_precision_agree():
    images = 0.5 + gaussian_noise(0.1, (3, 2, 8, 8, 3))
    plain = isvs.noise_level(images)
    assert plain.shape == (3, 2)
    np.testing.assert_array_equal(jax.jit(isvs.noise_level)(images), plain)
    np.testing.assert_allclose(jax.vmap(isvs.noise_level)(images), plain, rtol=1e-6)
    half = jnp.asarray(images, jnp.bfloat16)
    found = isvs.noise_level(half)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, isvs.noise_level(half.astype(jnp.float32)))


@pytest.mark.parametrize("channels", [1, 3])
def test_gradient_equals_finite_differences(channels):
    with jax.enable_x64(True):
        image = jnp.asarray(0.5 + gaussian_noise(0.1, (6, 7, channels)), jnp.float64)
        assert isvs.noise_level(image).dtype == jnp.float64
        # So small a step that the median stays at its pixels.
        check_grads(isvs.noise_level, (image,), order=1, eps=1e-6, atol=1e-6, rtol=1e-6)
        slope = np.asarray(jax.grad(isvs.noise_level)(image))
    # A square of four pixels, with as many signs of either kind.
    assert np.sum(np.abs(slope).sum(-1) > 0) == 4
    np.testing.assert_allclose(slope.sum((0, 1)), 0, atol=1e-12)
