import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import isvs
from isvs import components

METHODS = ("hook", "scan")


def spiral(size):
    """One path of pixels that winds to the middle, with walls of one pixel between its turns."""
    inside = np.zeros((size, size), bool)
    row, column, direction = 0, 0, (0, 1)
    inside[0, 0] = True
    while True:
        for _ in range(2):
            ahead = (row + direction[0], column + direction[1])
            beyond = (ahead[0] + direction[0], ahead[1] + direction[1])
            free = all(0 <= i < size for i in ahead) and not inside[ahead]
            if free and all(0 <= i < size for i in beyond):
                free = not inside[beyond]
            if free:
                break
            direction = (direction[1], -direction[0])
        else:
            return inside
        row, column = ahead
        inside[ahead] = True


def comb(size):
    """Teeth that hang together at the bottom only."""
    inside = np.zeros((size, size), bool)
    inside[:, ::2] = True
    inside[-1] = True
    return inside


def snake(size):
    """A path that runs to and fro, row by row."""
    inside = np.zeros((size, size), bool)
    inside[::2] = True
    inside[1::4, -1] = True
    inside[3::4, 0] = True
    return inside


def links_of(inside):
    """Ties between neighbouring pixels that are both inside."""
    return inside[:-1] & inside[1:], inside[:, :-1] & inside[:, 1:]


def random_links(shape, share, seed=0):
    height, width = shape
    generator = np.random.default_rng(seed)
    return (
        generator.random((height - 1, width)) < share,
        generator.random((height, width - 1)) < share,
    )


def check(down, right, method):
    labels = isvs.connected_components(jnp.asarray(down), jnp.asarray(right), method=method)
    assert labels.dtype == jnp.int32
    np.testing.assert_array_equal(labels, oracles.scipy_labels(down, right))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.3, 0.45, 0.5, 0.55, 0.7])
def test_random_links_around_the_percolation_threshold(method, share):
    check(*random_links((48, 40), share), method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (7, 5)])
def test_all_and_none_tied_down_to_one_pixel(method, share, shape):
    check(*random_links(shape, share), method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("figure", [spiral, comb, snake])
def test_winding_figures(method, figure):
    check(*links_of(figure(33)), method)
    check(*(mask[::-1, ::-1] for mask in links_of(figure(33))), method)


@pytest.mark.parametrize("method", METHODS)
def test_large_images(method):
    check(*random_links((512, 512), 0.5), method)


@pytest.mark.parametrize(("method", "limit"), [("hook", 40), ("scan", 300)])
@pytest.mark.parametrize("figure", [spiral, comb, snake])
def test_few_rounds_even_for_the_longest_paths(figure, method, limit):
    down, right = (jnp.asarray(mask)[None] for mask in links_of(figure(512)))
    labels, rounds = components.propagate(down, right, method=method)
    np.testing.assert_array_equal(labels[0], oracles.scipy_labels(down[0], right[0]))
    assert int(rounds) < limit


@pytest.mark.parametrize("method", [None, *METHODS])
def test_batches_are_independent_of_each_other(method):
    down, right = zip(*(random_links((9, 11), 0.5, seed) for seed in range(6)), strict=True)
    down, right = np.stack(down).reshape(2, 3, 8, 11), np.stack(right).reshape(2, 3, 9, 10)
    labels = isvs.connected_components(down, right, method=method)
    each = [
        oracles.scipy_labels(d, r)
        for d, r in zip(down.reshape(6, 8, 11), right.reshape(6, 9, 10), strict=True)
    ]
    np.testing.assert_array_equal(labels, np.stack(each).reshape(2, 3, 9, 11))
    mapped = jax.vmap(lambda d, r: isvs.connected_components(d, r, method=method))(down, right)
    np.testing.assert_array_equal(labels, mapped)


def test_bad_links_are_explained():
    good = jnp.zeros((3, 5), bool), jnp.zeros((4, 4), bool)
    with pytest.raises(ValueError, match=r"got down \(3, 5\) and right \(4, 5\)"):
        isvs.connected_components(good[0], jnp.zeros((4, 5), bool))
    with pytest.raises(ValueError, match="expected down"):
        isvs.connected_components(good[0][None], good[1])
    with pytest.raises(TypeError, match="True = tied"):
        isvs.connected_components(good[0].astype(int), good[1])
    with pytest.raises(ValueError, match="'hook', 'scan', got 'walk'"):
        isvs.connected_components(*good, method="walk")
