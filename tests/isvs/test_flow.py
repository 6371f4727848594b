"""The limit solver against the iteration that it replaces."""

import numpy as np
import oracles
import pytest

import isvs

LEVELS = (0.6, 0.8)
FINE = isvs.Flow(ratio=1.01, sweeps=4, horizon=2000.0)


def overlaps(images, flow, lbi):
    """Support IoU [L, B] where the iteration reaches the level, NaN elsewhere."""
    path = isvs.lbi_path(images, LEVELS, solver=lbi)
    space = isvs.encode(images, solver=flow)
    rows = [
        np.where(
            path.reached[row],
            oracles.support_overlap((path.down[row], path.right[row]), space.support(level)),
            np.nan,
        )
        for row, level in enumerate(LEVELS)
    ]
    return np.stack(rows)


@pytest.mark.parametrize("kind", ["colour_photographs", "grey_photographs"])
def test_support_is_that_of_the_paper_s_setting(kind, request):
    images = request.getfixturevalue(kind)
    found = overlaps(images, isvs.Flow(), isvs.LBI(max_steps=60_000))
    assert np.isfinite(found).mean() > 0.8
    assert (np.nanmean(found, axis=1) >= 0.99).all(), found
    assert np.nanmin(found) >= 0.98, found


@pytest.mark.parametrize(("kind", "crop"), [("colour_photographs", 32), ("grey_photographs", 40)])
def test_fine_steps_converge_to_the_limit(kind, crop, request):
    images = request.getfixturevalue(kind)[:3, :crop, :crop]
    found = overlaps(images, FINE, isvs.LBI(kappa=50.0, max_steps=400_000))
    assert np.isfinite(found).all()
    assert (found.mean(axis=1) >= 0.995).all(), found


def test_images_are_those_of_the_literal_projection(colour_photographs):
    path = isvs.lbi_path(colour_photographs, [0.6])
    assert bool(path.reached.all())
    found = oracles.psnr(path.images[0], isvs.smooth(colour_photographs, 0.6))
    assert found.mean() >= 45, found
    assert found.min() >= 43, (
        found
    )  # means of u against means of x differ by this much at kappa = 5


def test_order_of_entry_does_not_depend_on_contrast_or_brightness(colour_photographs):
    image = colour_photographs[0]
    space, faint = isvs.encode(image), isvs.encode(0.3 + 0.25 * image)
    same = [
        np.mean(np.abs(a.astype(int) - b) <= 1)
        for a, b in ((space.down, faint.down), (space.right, faint.right))
    ]
    assert min(same) > 0.99


def test_single_step_edge_enters_first_and_the_rest_never():
    image = np.zeros((6, 8, 3), np.float32)
    image[:, 3:] = [0.9, 0.5, 0.1]
    space = isvs.encode(image)
    assert (space.down == 255).all()
    across = np.asarray(space.right[:, 2])
    assert (across < 255).all()
    assert (np.delete(np.asarray(space.right), 2, axis=1) == 255).all()


def test_bad_settings_are_explained():
    for settings in (
        {"ratio": 1.0},
        {"sweeps": 0},
        {"horizon": 0.5},
        {"nu": 0.0},
        {"block_pixels": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(settings))):
            isvs.Flow(**settings)
    with pytest.raises(TypeError, match=r"encode needs solver=isvs.Flow\(...\), got LBI"):
        isvs.encode(np.zeros((4, 4, 1), np.float32), solver=isvs.LBI())
