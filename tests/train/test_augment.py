import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.data.augment import augment, random_crop, random_flip, random_resized_crop

BATCH, HEIGHT, WIDTH, PADDING = 256, 10, 12, 2


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.integers(0, 256, (BATCH, HEIGHT, WIDTH, 3)), jnp.uint8)


def windows(image):
    """All windows of one image padded by reflection, by their corner."""
    padded = np.pad(image, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)), mode="reflect")
    corners = np.ndindex(2 * PADDING + 1, 2 * PADDING + 1)
    return {(i, j): padded[i : i + HEIGHT, j : j + WIDTH] for i, j in corners}


@pytest.mark.parametrize("transform", [lambda f: f, lambda f: jax.jit(f, static_argnums=2)])
def test_crop_is_a_window_of_the_reflected_image(images, transform):
    cropped = np.asarray(transform(random_crop)(jax.random.key(1), images, PADDING))
    corners = []
    for image, result in zip(np.asarray(images), cropped, strict=True):
        found = [c for c, window in windows(image).items() if (window == result).all()]
        assert len(found) == 1
        corners += found
    assert len(set(corners)) == (2 * PADDING + 1) ** 2  # every shift occurs
    assert cropped.dtype == np.uint8


def test_flip_mirrors_about_half_of_the_images(images):
    flipped = np.asarray(random_flip(jax.random.key(2), images))
    original = np.asarray(images)
    mirrored = (flipped == original[:, :, ::-1]).all((1, 2, 3))
    kept = (flipped == original).all((1, 2, 3))
    assert (mirrored ^ kept).all()
    assert 0.35 < mirrored.mean() < 0.65


def test_flip_twice_is_identity(images):
    key = jax.random.key(2)
    assert (random_flip(key, random_flip(key, images)) == images).all()


def test_augment_is_flip_after_crop(images):
    key = jax.random.key(3)
    crop_key, flip_key = jax.random.split(key)
    expected = random_flip(flip_key, random_crop(crop_key, images, PADDING))
    assert (augment(key, images, PADDING, True) == expected).all()
    assert (augment(key, images, PADDING, False) == random_crop(crop_key, images, PADDING)).all()
    assert (augment(key, images, 0, True) == random_flip(flip_key, images)).all()
    assert augment(key, images, 0, False) is images


def test_same_key_moves_other_forms_of_the_batch_alike(images):
    key = jax.random.key(4)
    as_float = images.astype(jnp.float32) / 255
    moved = augment(key, as_float, PADDING)
    assert (moved == augment(key, images, PADDING).astype(jnp.float32) / 255).all()
    assert (augment(key, 1 - as_float, PADDING) == 1 - moved).all()
    assert (augment(key, as_float[..., :1], PADDING) == moved[..., :1]).all()


def test_keys_decide_and_constants_stay(images):
    run = jax.jit(augment, static_argnums=(2, 3))
    assert (run(jax.random.key(5), images) == run(jax.random.key(5), images)).all()
    assert not (run(jax.random.key(5), images) == run(jax.random.key(6), images)).all()
    constant = jnp.broadcast_to(jnp.arange(BATCH)[:, None, None, None], (BATCH, 8, 8, 1))
    assert (run(jax.random.key(5), constant) == constant).all()


def test_gradient_is_the_adjoint():
    @jax.jit
    def both_sides(x, y):
        value, pull = jax.vjp(lambda images: augment(jax.random.key(7), images, 2), x)
        return jnp.vdot(value, y), jnp.vdot(x, pull(y)[0])

    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((2, 4, 8, 8, 3)).astype(np.float32)
    np.testing.assert_allclose(*both_sides(x, y), rtol=1e-5)


@pytest.mark.parametrize("padding", [-1, 10])
def test_padding_must_be_smaller_than_the_image(images, padding):
    with pytest.raises(ValueError, match=r"padding: expected 0 to 9 .* got"):
        random_crop(jax.random.key(0), images, padding)


def test_shape_is_checked():
    with pytest.raises(ValueError, match=r"expected \[B, H, W, C\], got \[8, 8, 3\]"):
        augment(jax.random.key(0), jnp.zeros((8, 8, 3)))


def test_random_resized_crop_is_a_window_of_the_picture():
    rows, columns = jnp.meshgrid(jnp.linspace(0, 1, 32), jnp.linspace(0, 1, 32), indexing="ij")
    images = jnp.tile(jnp.stack([rows, columns], -1)[None], (64, 1, 1, 1))
    crops = random_resized_crop(jax.random.key(0), images, flip=False)
    assert crops.shape == images.shape
    # On ramps, a crop's centre differences give its sides: between the bounds, in both axes.
    inside = crops[:, 8:24, 8:24]
    heights = 31 * jnp.diff(inside[..., 0], axis=1).mean((1, 2))
    widths = 31 * jnp.diff(inside[..., 1], axis=2).mean((1, 2))
    area = heights * widths
    assert float(area.min()) > 0.07 and float(area.max()) <= 1.01 and float(area.std()) > 0.15
    ratio = widths / heights
    assert float(ratio.min()) > 0.74 and float(ratio.max()) < 1.35
    again = random_resized_crop(jax.random.key(0), images, flip=False)
    assert (crops == again).all()
    flipped = random_resized_crop(jax.random.key(0), images)
    mirrored = (jnp.diff(flipped[..., 1], axis=2).mean((1, 2)) < 0).sum()
    assert 16 < int(mirrored) < 48
