import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import isvs
from isvs import grid, lbi


def planes(image):
    return jnp.asarray(image).transpose(2, 0, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("kappa", "nu"), [(5.0, 1.0), (20.0, 0.5)])
def test_equals_a_slow_loop_over_600_steps(colour_photographs, channels, kappa, nu):
    image = colour_photographs[0, 8:18, 8:20, :channels]
    solver = isvs.LBI(kappa=kappa, nu=nu)
    state = jax.vmap(lbi.init)(planes(image)[None])
    checkpoints = {1, 10, 200, 600}
    done = 0
    for number, (u, down, right) in enumerate(oracles.literal_lbi(image, 600, kappa, nu), 1):
        if number in checkpoints:
            state = lbi.advance(state, planes(image)[None], number - done, solver)
            done = number
            np.testing.assert_allclose(state.u[0].transpose(1, 2, 0), u, atol=2e-5)
            np.testing.assert_allclose(state.down[0].transpose(1, 2, 0), down, atol=2e-4)
            np.testing.assert_allclose(state.right[0].transpose(1, 2, 0), right, atol=2e-4)


def test_recorded_levels_are_the_first_steps_that_reach_them(colour_photographs):
    image = colour_photographs[2, 10:20, 10:20]
    levels = [0.0, 0.1, 0.3, 0.6]
    path = isvs.lbi_path(image, levels)
    edges = 2 * 9 * 10
    first = {0.0: 0}
    snapshots = {}
    for number, (u, down, right) in enumerate(
        oracles.literal_lbi(image, int(path.steps[-1]) + 5), 1
    ):
        support = np.linalg.norm(down, axis=-1) > 1, np.linalg.norm(right, axis=-1) > 1
        share = (support[0].sum() + support[1].sum()) / edges
        for level in levels:
            if level not in first and share >= level:
                first[level] = number
                snapshots[level] = u, support, share
    assert list(path.steps) == [first[level] for level in levels]
    assert bool(path.reached.all())
    for row, level in enumerate(levels[1:], 1):
        u, (down, right), share = snapshots[level]
        np.testing.assert_array_equal(path.down[row], down)
        np.testing.assert_array_equal(path.right[row], right)
        assert path.sparsity[row] == pytest.approx(share)
        expected = oracles.dense_projection(u, ~down, ~right)
        np.testing.assert_allclose(path.images[row], expected, atol=5e-5)


def test_each_image_stops_for_itself(colour_photographs):
    images = colour_photographs[:4, :12, :12]
    together = isvs.lbi_path(images.reshape(2, 2, 12, 12, 3), [0.2, 0.5])
    assert together.images.shape == (2, 2, 2, 12, 12, 3)
    for i, image in enumerate(images):
        alone = isvs.lbi_path(image, [0.2, 0.5])
        np.testing.assert_array_equal(together.steps[:, i // 2, i % 2], alone.steps)
        np.testing.assert_allclose(together.images[:, i // 2, i % 2], alone.images, atol=1e-5)


def test_flat_parts_end_the_path_at_the_original():
    image = np.zeros((8, 8, 1), np.float32)
    image[:, 4:] = 0.5
    path = isvs.lbi_path(image, [0.05, 0.6], solver=isvs.LBI(max_steps=500))
    assert list(path.reached) == [True, False]
    assert int(path.steps[1]) == 500
    np.testing.assert_array_equal(path.images[1], image)
    np.testing.assert_array_equal(path.right[1], np.diff(image[..., 0], axis=1) != 0)
    constant = isvs.lbi_path(
        np.full((5, 5, 3), 0.25, np.float32), [0.5], solver=isvs.LBI(max_steps=100)
    )
    np.testing.assert_array_equal(constant.images[0], np.full((5, 5, 3), 0.25))


def test_step_size_is_half_of_the_largest_stable_one():
    norm = np.linalg.norm(oracles.difference_matrix(6, 9), 2)
    assert grid.operator_norm_squared(6, 9) == pytest.approx(norm**2)
    assert isvs.LBI().alpha(512, 512) == pytest.approx(0.0202, rel=1e-3)
    with pytest.raises(ValueError, match=r"step_size must be below 0\.04"):
        isvs.lbi_path(np.zeros((32, 32, 3), np.float32), [0.5], solver=isvs.LBI(step_size=0.05))


def test_adjoint_is_the_adjoint():
    u, down, right = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(3, 5, 7), (3, 4, 7), (3, 5, 6)])
    )
    left = jnp.vdot(grid.difference_down(u), down) + jnp.vdot(grid.difference_right(u), right)
    assert float(left) == pytest.approx(float(jnp.vdot(u, grid.adjoint(down, right))), rel=1e-5)


def test_bad_settings_are_explained():
    for settings in ({"kappa": 0}, {"nu": -1.0}, {"max_steps": 0}, {"kappa": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            isvs.LBI(**settings)
    with pytest.raises(TypeError, match="max_steps must be a Python int, got float"):
        isvs.LBI(max_steps=1e4)
    with pytest.raises(ValueError, match=r"levels \[L\], got shape \(\)"):
        isvs.lbi_path(np.zeros((4, 4, 1), np.float32), 0.5)
    with pytest.raises(ValueError, match=r"got 1\.5"):
        isvs.lbi_path(np.zeros((4, 4, 1), np.float32), [0.5, 1.5])
    with pytest.raises(TypeError, match="got Flow"):
        isvs.lbi_path(np.zeros((4, 4, 1), np.float32), [0.5], solver=isvs.Flow())
