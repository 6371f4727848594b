import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eval import frequency


def slow_low(image: np.ndarray, radius: float) -> np.ndarray:
    height, width, channels = image.shape
    low = np.zeros(image.shape)
    for channel in range(channels):
        centred = np.fft.fftshift(np.fft.fft2(image[..., channel].astype(np.float64)))
        for i in range(height):
            for j in range(width):
                if np.sqrt((i - height // 2) ** 2 + (j - width // 2) ** 2) >= radius:
                    centred[i, j] = 0
        low[..., channel] = np.fft.ifft2(np.fft.ifftshift(centred)).real
    return low


def pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(2, 8, 8, 3), (1, 8, 12, 1), (1, 7, 9, 2), (1, 9, 8, 1)])
@pytest.mark.parametrize("radius", [0.5, 2.0, 3.7])
def test_split_is_the_hard_disc(shape, radius):
    images = pictures(*shape)
    low, high = jax.jit(frequency.split)(images, radius)
    expected = np.stack([slow_low(image, radius) for image in images])
    np.testing.assert_allclose(low, expected, atol=2e-6)
    np.testing.assert_allclose(low + high, images, atol=1e-6)


def test_extreme_radii():
    images = pictures(2, 8, 8, 3)
    low, high = frequency.split(jnp.asarray(images), 8 / np.sqrt(2) + 0.1)
    np.testing.assert_allclose(low, images, atol=1e-6)
    np.testing.assert_allclose(high, np.zeros_like(images), atol=1e-6)
    low, _ = frequency.split(jnp.asarray(images), 0.0)
    np.testing.assert_allclose(low, np.zeros_like(images), atol=1e-6)
    low, _ = frequency.split(jnp.asarray(images), 1.0)  # frequency zero alone: the mean
    means = np.broadcast_to(images.mean((1, 2), keepdims=True), images.shape)
    np.testing.assert_allclose(low, means, atol=1e-6)


def test_a_wave_lies_at_its_frequency():
    columns = np.arange(16)
    wave = np.cos(2 * np.pi * 5 * columns / 16).astype(np.float32)
    images = jnp.asarray(np.tile(wave, (16, 1))[None, :, :, None])
    spectrum = np.asarray(frequency.spectrum(images))
    assert {tuple(place) for place in np.argwhere(spectrum > np.log(1e-3))} == {(8, 3), (8, 13)}
    amplitude = frequency.amplitude(images)
    # Parseval: the scaling keeps the sum of squares.
    np.testing.assert_allclose((amplitude**2).sum(), (images**2).sum(), rtol=1e-5)
    profile = np.asarray(frequency.radial_profile(amplitude[0, :, :, 0]))
    assert profile.argmax() == 5


def test_spectrum_is_the_mean_logarithm():
    images = pictures(3, 6, 8, 2)
    total = np.zeros((6, 8))
    for image in images.astype(np.float64):
        for channel in range(2):
            total += np.log(np.abs(np.fft.fftshift(np.fft.fft2(image[..., channel], norm="ortho"))))
    np.testing.assert_allclose(frequency.spectrum(jnp.asarray(images)), total / 6, atol=1e-3)
    assert np.isfinite(frequency.spectrum(jnp.zeros((1, 4, 4, 1)))).all()


@pytest.mark.parametrize("shape", [(8, 8), (7, 10)])
def test_radial_profile_against_a_loop(shape):
    power = pictures(*shape)
    rings: dict[int, list[float]] = {}
    for i in range(shape[0]):
        for j in range(shape[1]):
            ring = round(np.hypot(i - shape[0] // 2, j - shape[1] // 2))
            rings.setdefault(ring, []).append(power[i, j])
    profile = jax.jit(frequency.radial_profile)(jnp.asarray(power))
    expected = [np.mean(rings[ring]) for ring in range(min(shape) // 2 + 1)]
    np.testing.assert_allclose(profile, expected, rtol=1e-5)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"floating images \[B, H, W, C\], got uint8"):
        frequency.split(jnp.zeros((1, 4, 4, 3), jnp.uint8), 2.0)
    with pytest.raises(ValueError, match=r"spectrum \[H, W\]"):
        frequency.radial_profile(jnp.zeros((1, 4, 4)))
