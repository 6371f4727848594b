import jax
import jax.numpy as jnp
import numpy as np
import pytest

import isvs


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_keeps_shape_and_dtype(colour_photographs, dtype):
    images = jnp.asarray(colour_photographs[:2], dtype)
    smoothed = isvs.smooth(images, 0.5)
    assert smoothed.dtype == dtype
    in_single = isvs.smooth(images.astype(jnp.float32), 0.5).astype(dtype)
    np.testing.assert_array_equal(smoothed.astype(jnp.float32), in_single.astype(jnp.float32))
    np.testing.assert_array_equal(isvs.smooth(images, 1.0), images)


def test_level_one_does_not_solve(colour_photographs):
    def loops(level):
        return str(jax.make_jaxpr(lambda images: isvs.smooth(images, level))(images)).count("scan[")

    images = jnp.asarray(colour_photographs[:1])
    assert loops(1.0) == loops(1) == 0 < loops(0.99)
    # A level that comes as an array may be 1 too, and is then found by solving.
    np.testing.assert_array_equal(isvs.smooth(images, jnp.float32(1)), images)
    rule = isvs.Speckle()
    removed = isvs.smooth(images, 1.0, speckle=rule)
    np.testing.assert_array_equal(removed, isvs.remove_speckle(images, rule))


@pytest.mark.parametrize(
    "turn",
    [
        lambda x: x[..., ::-1, :],
        lambda x: x[..., ::-1, :, :],
        lambda x: jnp.swapaxes(x, -3, -2),
        lambda x: x[..., ::-1],
    ],
    ids=["left-right", "up-down", "transpose", "channels"],
)
def test_flips_and_transposes_commute(colour_photographs, turn):
    images = jnp.asarray(colour_photographs[:3])
    np.testing.assert_allclose(
        isvs.smooth(turn(images), 0.6), turn(isvs.smooth(images, 0.6)), atol=1e-3
    )


def test_constants_stay():
    for value in (0.0, 0.25, 1.0):
        images = jnp.full((2, 6, 6, 3), value)
        np.testing.assert_allclose(isvs.smooth(images, 0.3), images, atol=1e-6)


def test_projection_gradient_equals_finite_differences(colour_photographs):
    image = jnp.asarray(colour_photographs[0, 6:18, 6:18])
    weights = jax.random.normal(jax.random.key(0), image.shape)

    def loss(x):
        return jnp.sum(weights * isvs.smooth(x, 0.5))

    gradient = jax.grad(loss)(image)
    space = isvs.encode(image)
    tried = 0
    for key in jax.random.split(jax.random.key(1), 40):
        direction = 1e-4 * jax.random.normal(key, image.shape)
        there, back = image + direction, image - direction
        unchanged = all(
            bool((a == b).all() & (a == c).all())
            for a, b, c in zip(
                space.support(0.5),
                isvs.encode(there).support(0.5),
                isvs.encode(back).support(0.5),
                strict=True,
            )
        )
        if unchanged:
            tried += 1
            difference = float(loss(there) - loss(back)) / 2
            assert difference == pytest.approx(
                float(jnp.vdot(gradient, direction)), rel=0.02, abs=2e-5
            )
    assert tried >= 3


def test_forward_and_reverse_mode_agree(colour_photographs):
    image = jnp.asarray(colour_photographs[1, :10, :10])
    direction = jax.random.normal(jax.random.key(0), image.shape)
    value, tangent = jax.jvp(lambda x: isvs.smooth(x, 0.4), (image,), (direction,))
    _, pull = jax.vjp(lambda x: isvs.smooth(x, 0.4), image)
    np.testing.assert_allclose(tangent, pull(direction)[0], atol=1e-5)  # M is symmetric
    np.testing.assert_array_equal(value, isvs.smooth(image, 0.4))


def test_projection_keeps_nothing_of_the_solver():
    image = jnp.zeros((32, 32, 3))
    _, pull = jax.vjp(lambda x: isvs.smooth(x, 0.5), image)
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(pull))
    assert kept <= 4 * image.nbytes


@pytest.mark.parametrize("solver", [isvs.Flow(), isvs.LBI(max_steps=5000)], ids=["flow", "lbi"])
def test_identity_gradient(colour_photographs, solver):
    image = jnp.asarray(colour_photographs[1, :8, :8])
    weights = jax.random.normal(jax.random.key(0), image.shape)

    def loss(x, gradient):
        return jnp.sum(weights * isvs.smooth(x, 0.4, solver=solver, gradient=gradient))

    straight = jax.grad(loss)(image, "identity")
    np.testing.assert_allclose(straight, weights, atol=1e-6)
    assert float(loss(image, "identity")) == pytest.approx(
        float(loss(image, "projection")), rel=1e-5
    )
    assert float(jnp.abs(jax.grad(loss)(image, "projection") - weights).max()) > 0.1


def test_unrolled_gradient_equals_finite_differences(colour_photographs):
    image = jnp.asarray(colour_photographs[2, 10:16, 10:16, :1])
    solver = isvs.LBI(max_steps=2000)
    weights = jax.random.normal(jax.random.key(0), image.shape)

    def loss(x):
        return jnp.sum(weights * isvs.smooth(x, 0.3, solver=solver, gradient="unrolled"))

    gradient = jax.grad(loss)(image)
    step = isvs.lbi_path(image, [0.3], solver=solver).steps
    tried = 0
    for key in jax.random.split(jax.random.key(1), 10):
        direction = 3e-4 * jax.random.normal(key, image.shape)
        there, back = image + direction, image - direction
        if all(
            int(isvs.lbi_path(x, [0.3], solver=solver).steps[0]) == int(step[0])
            for x in (there, back)
        ):
            tried += 1
            difference = float(loss(there) - loss(back)) / 2
            assert difference == pytest.approx(
                float(jnp.vdot(gradient, direction)), rel=0.05, abs=1e-4
            )
    assert tried >= 1


@pytest.mark.parametrize("gradient", ["projection", "identity", "unrolled"])
def test_no_nan_at_flat_images(gradient):
    solver = isvs.LBI(max_steps=100) if gradient == "unrolled" else isvs.Flow()
    images = jnp.stack([jnp.zeros((5, 5, 3)), jnp.full((5, 5, 3), 0.5)])
    value, slope = jax.value_and_grad(
        lambda x: jnp.sum(isvs.smooth(x, 0.5, solver=solver, gradient=gradient) ** 2)
    )(images)
    assert bool(jnp.isfinite(value))
    assert bool(jnp.isfinite(slope).all())


def test_lbi_ends_of_the_path(colour_photographs):
    images = jnp.asarray(colour_photographs[:2, :8, :8])
    solver = isvs.LBI(max_steps=200)
    np.testing.assert_array_equal(isvs.smooth(images, 1.0, solver=solver), images)
    mean = jnp.broadcast_to(images.mean((1, 2), keepdims=True), images.shape)
    np.testing.assert_allclose(isvs.smooth(images, 0.0, solver=solver), mean, atol=1e-6)


def test_bad_input_is_explained():
    image = jnp.zeros((4, 4, 3))
    with pytest.raises(
        ValueError, match=r"at least 3 axes, got shape \(4, 4\).*images\[..., None\]"
    ):
        isvs.smooth(image[..., 0])
    with pytest.raises(TypeError, match="got dtype uint8; divide by 255"):
        isvs.smooth(image.astype(jnp.uint8))
    with pytest.raises(TypeError, match="complex64"):
        isvs.smooth(image.astype(jnp.complex64))
    with pytest.raises(ValueError, match="H, W, C >= 1"):
        isvs.smooth(jnp.zeros((0, 4, 3)))
    for level in (-0.1, 1.01, float("nan"), np.array([0.5, 2.0])):
        with pytest.raises(ValueError, match=r"sparsity must lie in \[0, 1\]"):
            isvs.smooth(jnp.zeros((2, 4, 4, 3)), level)
    with pytest.raises(ValueError, match=r"batch axes \(2,\) of the images, got shape \(3,\)"):
        isvs.smooth(jnp.zeros((2, 4, 4, 3)), jnp.full(3, 0.5))
    for level in ("0.6", True, None):
        with pytest.raises(TypeError, match="sparsity must be a number or an array"):
            isvs.smooth(image, level)
    with pytest.raises(ValueError, match="'identity', 'projection', 'unrolled', got 'exact'"):
        isvs.smooth(image, gradient="exact")
    with pytest.raises(ValueError, match=r"needs solver=isvs.LBI"):
        isvs.smooth(image, gradient="unrolled")
    with pytest.raises(TypeError, match="solver must be"):
        isvs.smooth(image, solver="flow")
