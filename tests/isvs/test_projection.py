import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import isvs


@pytest.fixture(params=[(7, 9, 3), (12, 12, 1), (1, 10, 2), (10, 1, 3)], ids=str)
def case(request):
    height, width, _ = request.param
    generator = np.random.default_rng(0)
    image = generator.random(request.param, np.float32)
    down = generator.random((height - 1, width)) < 0.5
    right = generator.random((height, width - 1)) < 0.5
    return image, down, right


def project(image, down, right):
    return isvs.component_means(image, isvs.connected_components(down, right))


def test_equals_the_pseudo_inverse(case):
    np.testing.assert_allclose(project(*case), oracles.dense_projection(*case), atol=2e-6)


def test_equals_least_squares(case):
    np.testing.assert_allclose(project(*case), oracles.lsqr_projection(*case), atol=2e-6)


def test_is_its_own_gradient_and_idempotent(case):
    image, down, right = case
    once = project(image, down, right)
    np.testing.assert_allclose(project(once, down, right), once, atol=1e-6)
    weights = np.random.default_rng(1).random(image.shape, np.float32)
    gradient = jax.grad(lambda x: jnp.sum(weights * project(x, down, right)))(jnp.asarray(image))
    np.testing.assert_allclose(gradient, oracles.dense_projection(weights, down, right), atol=2e-6)


def test_half_precision_sums_in_single():
    image = jnp.full((64, 64, 1), 0.3, jnp.float16).at[0, 0].set(0.31)
    means = isvs.component_means(image, jnp.zeros((64, 64), jnp.int32))
    assert means.dtype == jnp.float16
    np.testing.assert_allclose(means.astype(jnp.float32), 0.3, atol=2e-4)


@pytest.mark.parametrize("size", [(250, 260), (1000, 1000), (2000, 1500)], ids=str)
def test_means_of_large_regions_do_not_drift(size):
    generator = np.random.default_rng(0)
    image = (75 + generator.integers(0, 2, (*size, 1))).astype(np.float32) / 255
    means = isvs.component_means(image, jnp.zeros(size, jnp.int32))
    np.testing.assert_allclose(means[0, 0, 0], image.mean(dtype=np.float64), rtol=1e-5)


def test_bad_labels_are_explained():
    image = jnp.zeros((2, 3, 1))
    with pytest.raises(ValueError, match=r"must be \(2, 3\) for images \(2, 3, 1\), got \(3, 2\)"):
        isvs.component_means(image, jnp.zeros((3, 2), jnp.int32))
    with pytest.raises(TypeError, match="integers"):
        isvs.component_means(image, jnp.zeros((2, 3)))
