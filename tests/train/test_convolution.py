"""Our convolution against `jax.lax`'s, values and both gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.models.convolution import convolve


@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding"),
    [
        (8, 3, 1, 1),
        (8, 3, 2, 1),
        (9, 3, 2, 1),
        (8, 1, 2, 0),
        (12, 7, 2, 3),
        (8, 4, 4, 0),
        (9, 4, 4, 0),
    ],
)
def test_it_is_the_convolution_of_lax(size, taps, stride, padding):
    keys = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(keys[0], (2, size, size + 1, 3))
    kernel = jax.random.normal(keys[1], (taps, taps, 3, 5))
    strides, around = (stride, stride), ((padding, padding), (padding, padding))

    def peer(images, kernel):
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            images, kernel, strides, around, dimension_numbers=layout
        )

    expected, pull = jax.vjp(peer, images, kernel)
    found, our_pull = jax.vjp(lambda x, k: convolve(x, k, strides, around), images, kernel)
    cotangent = jax.random.normal(keys[2], expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(our_pull(cotangent), pull(cotangent), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_options_it_does_not_have_are_refused():
    images, kernel = jnp.zeros((1, 4, 4, 2)), jnp.zeros((3, 3, 2, 2))
    with pytest.raises(ValueError, match="feature_group_count"):
        convolve(images, kernel, (1, 1), ((1, 1), (1, 1)), feature_group_count=2)
