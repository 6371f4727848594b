import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from oracles import gaussian_noise, psnr

import isvs
from eval.photographs import photographs

SMOOTH = jax.jit(isvs.smooth, static_argnames="sparsity")


def hills(batch, size, channels=3):
    """Smooth images with one soft edge, in colours that change slowly."""
    down, across = np.ogrid[0 : 1 : size * 1j, 0 : 1 : size * 1j]
    colours = [np.sin(3 * down + phase) + np.tanh(6 * (across - 0.4)) for phase in range(channels)]
    one = (0.5 + 0.15 * np.stack(colours, -1)).astype(np.float32)
    return np.broadcast_to(one, (batch, *one.shape))


# Of one shape for most tests: compiling is what takes time here.
@pytest.fixture(scope="module")
def images():
    """[8, 14, 14, 3]: a flat one, a quiet one with a spot, and others that are ever louder."""
    clean = hills(8, 14)
    sigma = np.float32([0, 0.004, 0.01, 0.02, 0.05, 0.08, 0.12, 0.16])
    noisy = clean + sigma[:, None, None, None] * gaussian_noise(1, clean.shape)
    noisy[0] = 0.5
    noisy[1:, 5, 7] = [0, 1, 0]
    return jnp.asarray(noisy)


def smooth_and_pull(images):
    """The cleaned images, and a gradient through the cleaning."""
    cleaned, pull = jax.vjp(lambda x: isvs.smooth(x, "auto"), images)
    return cleaned, pull(2 * cleaned)[0]


@pytest.fixture(scope="module")
def expected(images):
    return jax.jit(smooth_and_pull)(images)


def assert_same(results, expected):
    """Equal up to a few edges whose entry times differ by rounding."""
    for ours, theirs in zip(results, expected, strict=True):
        assert np.mean(np.abs(np.asarray(ours) - np.asarray(theirs)) > 1e-4) < 2e-3


def test_auto_is_short_for_the_policy(images):
    def program(policy, **settings):
        return str(jax.make_jaxpr(lambda x: isvs.smooth(x, policy, **settings))(images))

    assert program("auto") == program(isvs.AutoLevel())
    flow = isvs.Flow(ratio=1.5, sweeps=5)
    assert program("auto", solver=flow) == program(isvs.AutoLevel(solver=flow)) != program("auto")


@pytest.mark.parametrize(("size", "count"), [(32, 6), (84, 1), (224, 1), (512, 1)])
def test_noise_falls_at_every_size(size, count):
    clean = photographs(count, size)
    noisy = clean + gaussian_noise(0.1, clean.shape)
    gain = psnr(SMOOTH(noisy, isvs.AutoLevel(limit=math.inf)), clean) - psnr(noisy, clean)
    assert (gain > 2).all(), gain


@pytest.mark.parametrize(("sigma", "alone"), [(0.03, 0), (0.15, 1)])
def test_large_images_with_strong_noise_are_left_alone(sigma, alone):
    image = photographs(1, 224)[0]
    image = image + gaussian_noise(sigma, image.shape)
    image[::9, ::9, 1] = 1.5 - image[::9, ::9, 1]  # speckle too
    for crop, expected in ((image, alone), (image[96:128, 96:128], 0)):
        untouched = np.mean(np.asarray(SMOOTH(crop, "auto")) == crop)
        assert untouched == 1 if expected else untouched < 0.5


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_any_number_of_channels(channels):
    clean = hills(2, 24, channels)
    noisy = clean + gaussian_noise(0.1, clean.shape)
    gain = psnr(SMOOTH(noisy, "auto"), clean) - psnr(noisy, clean)
    assert (gain > 3).all(), gain
    quiet = clean + gaussian_noise(0.004, clean.shape)
    np.testing.assert_array_equal(SMOOTH(quiet, "auto"), quiet)


def test_quiet_images_stay_bit_for_bit_but_for_speckle(images, expected):
    cleaned = np.asarray(expected[0])
    assert float(isvs.noise_level(images[1])) < isvs.AutoLevel().quiet
    spot = np.zeros((14, 14), bool)
    spot[5, 7] = True
    np.testing.assert_array_equal(cleaned[1][~spot], images[1][~spot])
    assert np.abs(cleaned[1] - hills(1, 14)[0])[spot].max() < 0.1
    # Not so a loud one in the same batch.
    assert np.mean(cleaned[-1] == images[-1]) < 0.5


def test_flat_images_stay_and_have_a_gradient(images, expected):
    cleaned, slope = expected
    np.testing.assert_array_equal(cleaned[0], images[0])
    np.testing.assert_array_equal(slope[0], 2 * images[0])
    assert bool(jnp.isfinite(slope).all())


def test_impulses_go():
    clean = photographs(6, 32)
    generator = np.random.default_rng(0)
    struck = generator.random(clean.shape) < 0.03
    noisy = np.where(struck, generator.integers(0, 2, clean.shape), clean).astype(np.float32)
    gain = psnr(SMOOTH(noisy, "auto"), clean) - psnr(noisy, clean)
    assert (gain > 5).all(), gain


@pytest.mark.parametrize(("sigma", "by_the_rule_alone"), [(0.04, 0), (0.12, 0.05)])
def test_noise_that_channels_share_is_left_alone(sigma, by_the_rule_alone):
    """It is not seen, so nothing is smoothed; and it is not taken for speckle either."""
    clean = photographs(6, 32)
    noisy = clean + gaussian_noise(sigma, (*clean.shape[:-1], 1))
    changed = np.mean(np.asarray(SMOOTH(noisy, "auto")) != noisy)
    by_the_rule = np.mean(np.asarray(isvs.remove_speckle(noisy)) != noisy)
    assert changed < 0.02 and by_the_rule >= by_the_rule_alone
    spot = noisy.copy()
    spot[:, 9, 9, 1] += 2  # far from all around it
    assert np.mean(np.asarray(SMOOTH(spot, "auto"))[:, 9, 9, 1] != spot[:, 9, 9, 1]) == 1


def test_strong_noise_is_not_taken_for_speckle():
    """Spots go only where they stand out from the noise, and the noise is seen in full."""
    image = np.full((48, 48, 3), 0.5, np.float32) + gaussian_noise(0.12, (48, 48, 3))
    image[20, 30] = [-0.9, 2.0, -0.9]
    ties_nothing = isvs.AutoLevel(stiffness=1e-6)
    changed = np.abs(np.asarray(SMOOTH(image, ties_nothing)) - image).max(-1) > 1e-3
    by_the_rule = np.abs(np.asarray(isvs.remove_speckle(image)) - image).max(-1) > 1e-3
    assert changed[20, 30] and changed.mean() < 0.01 < 0.15 < by_the_rule.mean()
    loosely = isvs.AutoLevel(stiffness=1e-6, outlier=1e-6)
    np.testing.assert_allclose(SMOOTH(image, loosely), isvs.remove_speckle(image), atol=1e-4)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_colour_is_tied_stiffer_than_brightness(channels):
    """Where all is tied, the mean of the channels and what differs from it go through two dense solves."""
    side = 12
    noisy = hills(1, side, channels)[0] + gaussian_noise(0.1, (side, side, channels))
    policy = isvs.AutoLevel(contrast=1e6, stiffness=1.5, colour=4.0, quiet_grey=0.01, speckle=None)
    chain = 2 * np.eye(side) - np.eye(side, k=1) - np.eye(side, k=-1)
    chain[0, 0] = chain[-1, -1] = 1
    laplacian = np.kron(chain, np.eye(side)) + np.kron(np.eye(side), chain)

    def solve(stiffness, image):
        flat = image.reshape(side * side, -1).astype(np.float64)
        return np.linalg.solve(np.eye(side * side) + stiffness * laplacian, flat)

    mean = noisy.mean(-1, keepdims=True)
    tied = solve(1.5, mean) + solve(6.0, noisy - mean)
    np.testing.assert_allclose(SMOOTH(noisy, policy), tied.reshape(noisy.shape), atol=2e-5)


def test_stiffness_rises_from_quiet_to_its_value():
    policy = isvs.AutoLevel(stiffness=4.0, quiet=0.01, quiet_grey=0.03)
    sigma = jnp.array([0.0, 0.01, 0.015, 0.02, 0.05])
    np.testing.assert_allclose(policy.choose(sigma, (32, 32, 3)), [0, 0, 2, 4, 4], atol=1e-5)
    np.testing.assert_allclose(policy.choose(3 * sigma, (32, 32, 1)), [0, 0, 2, 4, 4], atol=1e-5)


def test_stiffness_falls_from_the_limit_to_nothing():
    policy = isvs.AutoLevel(stiffness=4.0, quiet=0.001, limit=6.0)
    sigma = jnp.array([0.05, 0.06, 0.075, 0.09, 0.12, 0.5])
    np.testing.assert_allclose(
        policy.choose(sigma, (50, 200, 3)), [4, 4, 3, 2, 0, 0], atol=1e-5
    )  # 100 x 100
    unlimited = isvs.AutoLevel(stiffness=4.0, quiet=0.001, limit=math.inf)
    np.testing.assert_allclose(unlimited.choose(sigma, (4000, 6000, 3)), 4 * np.ones(6))


@pytest.mark.parametrize("axes", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_eight_devices_are_one(images, expected, axes):
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(axes,))
    with jax.set_mesh(mesh):
        spread = jax.device_put(images, NamedSharding(mesh, PartitionSpec("batch")))
        results = jax.jit(smooth_and_pull)(spread)
    assert_same(results, expected)
    assert all(result.sharding.spec[0] == "batch" for result in results)


def test_vmap_within_shard_map(images, expected):
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Auto,))
    batch = PartitionSpec("batch")
    split = jax.shard_map(jax.vmap(smooth_and_pull), mesh=mesh, in_specs=batch, out_specs=batch)
    assert_same(jax.jit(split)(images), expected)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_lowers_for_other_platforms(images, platform):
    exported = jax.export.export(jax.jit(smooth_and_pull), platforms=[platform])(images)
    assert "callback" not in exported.mlir_module()


def test_gradient_equals_finite_differences():
    """Where the noise is between quiet and twice that, so that the stiffness depends on the image too."""
    policy = isvs.AutoLevel()
    noisy = hills(1, 9)[0] + gaussian_noise(0.014, (9, 9, 3))
    noisy[4, 4, 1] = 0
    with jax.enable_x64(True):
        image = jnp.asarray(noisy, jnp.float64)
        weights, direction = jax.random.normal(jax.random.key(0), (2, 9, 9, 3), jnp.float64)

        def loss(x):
            return jnp.vdot(weights, isvs.smooth(x, policy))

        def choose(x):
            return policy.choose(isvs.noise_level(isvs.remove_speckle(x)), x.shape)

        @jax.jit
        def step(size):
            x = image + size * direction
            value, slope = jax.value_and_grad(loss)(x)
            return value, jnp.vdot(slope, direction), choose(x)

        # So small that the support, the speckle and the median stay where they are.
        there, here, back = (step(size) for size in (1e-7, 0.0, -1e-7))
        difference, _, change = (float(a - b) / 2e-7 for a, b in zip(there, back, strict=True))
    assert 0 < float(here[2]) < policy.stiffness
    assert abs(change) > 10
    assert float(here[1]) == pytest.approx(difference, rel=1e-5)


def test_policies_are_static_arguments(images):
    assert {isvs.AutoLevel(): 1}[isvs.AutoLevel()] == 1
    assert isvs.AutoLevel(contrast=2.0) != isvs.AutoLevel()
    for policy in ("auto", isvs.AutoLevel(), isvs.AutoLevel(quiet=0.1)):
        assert SMOOTH.eval_shape(images, policy).shape == images.shape


def test_bad_input_is_explained(images):
    with pytest.raises(TypeError, match=r'"auto" or isvs.AutoLevel.*got .automatic.'):
        isvs.smooth(images, "automatic")
    for chosen in ({"stiffness": 2.0}, {"speckle": isvs.Speckle()}):
        with pytest.raises(ValueError, match=r"chooses stiffness and speckle itself"):
            isvs.smooth(images, "auto", **chosen)
    with pytest.raises(ValueError, match=r"need solver=isvs.Flow\(...\), got isvs.LBI"):
        isvs.smooth(images, "auto", solver=isvs.LBI())
    with pytest.raises(ValueError, match=r'"unrolled" needs solver=isvs.LBI\(...\)'):
        isvs.smooth(images, "auto", gradient="unrolled")
    for name in ("contrast", "stiffness", "colour", "quiet", "quiet_grey", "outlier"):
        for wrong in (0, -0.1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"{name} must be above 0 and finite, got"):
                isvs.AutoLevel(**{name: wrong})
    for wrong in (0, -1.0, math.nan):
        with pytest.raises(ValueError, match="limit must be above 0 and finite, got"):
            isvs.AutoLevel(limit=wrong)
    with pytest.raises(TypeError, match="limit must be a Python number, got str"):
        isvs.AutoLevel(limit="8")
    with pytest.raises(ValueError, match=r"at most 10000, got 20000\.0 and 2\.0"):
        isvs.AutoLevel(stiffness=20000.0)
    with pytest.raises(
        ValueError, match=r"times colour, must be at most 10000, got 1\.0 and 20000"
    ):
        isvs.AutoLevel(colour=20000.0)
    with pytest.raises(TypeError, match=r"speckle must be isvs.Speckle\(...\) or None, got True"):
        isvs.AutoLevel(speckle=True)
    with pytest.raises(TypeError, match=r"solver must be isvs.Flow\(...\), got LBI"):
        isvs.AutoLevel(solver=isvs.LBI())
