import time

import numpy as np
import pytest
from PIL import Image

from train.data import shapes
from train.data.outlines import OUTLINES, unit_area


@pytest.fixture(scope="module")
def dataset():
    return shapes.open_shapes(seed=0, limit_train=None, limit_test=None)


def draw_with_coverage(labels, seed=0):
    """Pictures, and how much of each pixel the figure covers: the same generator, drawn twice."""
    rng = np.random.default_rng(seed)
    axis = np.arange(shapes.SIDE, dtype=np.float32) - (shapes.SIDE - 1) / 2
    y, x = axis[:, None], axis[None, :]
    for colour in shapes._two_colours(rng, len(labels)):
        shapes._textured(rng, colour, x, y)
    coverage = shapes._figures(rng, labels, x, y)
    return shapes.draw(labels, np.random.default_rng(seed)), coverage


def accuracy_of_ridge(train_x, train_y, test_x, test_y):
    """Accuracy of a linear classifier fitted by least squares on standardised features."""
    mean, std = train_x.mean(0), train_x.std(0) + 1e-6
    train_x, test_x = (train_x - mean) / std, (test_x - mean) / std
    targets = np.eye(10)[train_y] - 0.1
    gram = train_x.T @ train_x + 10.0 * np.eye(train_x.shape[1])
    scores = test_x @ np.linalg.solve(gram, train_x.T @ targets)
    return (scores.argmax(1) == test_y).mean()


def test_sizes_and_types(dataset):
    assert (len(dataset.train), len(dataset.test)) == (10_000, 2_000)
    assert dataset.image_shape == (32, 32, 3) and dataset.num_classes == 10
    assert dataset.train.images.dtype == np.uint8 and dataset.train.labels.dtype == np.int32
    assert (np.bincount(dataset.train.labels) == 1000).all()
    assert (np.bincount(dataset.test.labels) == 200).all()


def test_same_seed_same_bytes_other_seed_other_bytes(dataset):
    again = shapes.open_shapes(0, 300, 150)
    assert (again.train.images == dataset.train.images[:300]).all()  # a limit takes the beginning
    assert (again.test.labels == dataset.test.labels[:150]).all()
    assert again.fingerprint == shapes.open_shapes(0, 300, 150).fingerprint
    assert again.fingerprint != shapes.open_shapes(1, 300, 150).fingerprint


def test_train_and_test_share_no_picture(dataset):
    seen = {image.tobytes() for image in dataset.train.images}
    assert len(seen) == len(dataset.train)
    assert not any(image.tobytes() in seen for image in dataset.test.images)


def test_label_changes_nothing_but_the_figure():
    """Where the figures of two classes both cover a pixel, or neither does, it is the same."""
    reference, covered = draw_with_coverage(np.full(100, 0, np.int32))
    for label in range(1, 10):
        other, other_covered = draw_with_coverage(np.full(100, label, np.int32))
        same = covered == other_covered
        assert same.mean() > 0.5
        assert (other[same] == reference[same]).all()
        swapped = np.abs(covered - other_covered) == 1
        assert (other[swapped] != reference[swapped]).any(-1).mean() > 0.8  # clutter hides a few


def test_all_classes_cover_the_same_area():
    areas = [draw_with_coverage(np.full(200, c, np.int32))[1].mean() for c in range(10)]
    # Not equal to the last digit: a tip of a star or a tee may leave the picture.
    np.testing.assert_allclose(areas, np.mean(areas), rtol=0.06)


def test_colours_are_at_chance(dataset):
    def histograms(images):
        bins = (images.reshape(len(images), -1, 3) >> 5) + np.array([0, 8, 16], np.uint8)
        return np.stack([np.bincount(row.ravel(), minlength=24) for row in bins]) / 1024

    train, test = dataset.train, dataset.test
    accuracy = accuracy_of_ridge(
        histograms(train.images), train.labels, histograms(test.images), test.labels
    )
    assert accuracy < 0.13  # chance is 0.10, with a standard error of 0.007


def test_textures_are_at_chance():
    """Differences of neighbours, away from the outline, say nothing about the class."""
    n = 3000
    labels = np.random.default_rng(1).integers(0, 10, n).astype(np.int32)
    images, coverage = draw_with_coverage(labels, seed=2)
    columns = []
    for region in (0.0, 1.0):  # ground, figure
        for axis in (1, 2):
            step = np.abs(np.diff(images.astype(np.float32), axis=axis))  # [N, H, W, 3]
            inside = (coverage == region) & (np.roll(coverage, -1, axis) == region)
            inside = np.delete(inside, -1, axis)[..., None]
            columns.append((step * inside).sum((1, 2)) / np.maximum(inside.sum((1, 2)), 1))
    features = np.concatenate(columns, axis=1)  # [N, 12]
    half = n // 2
    accuracy = accuracy_of_ridge(features[:half], labels[:half], features[half:], labels[half:])
    assert accuracy < 0.135  # chance is 0.10, with a standard error of 0.008


def test_outlines_tell_the_classes_apart():
    """Centred, unstretched silhouettes differ from each other by a good part of their area."""
    axis = np.linspace(-2, 2, 100, dtype=np.float32)
    x, y = np.meshgrid(axis, axis)
    inside = []
    for name, outline in OUTLINES.items():
        scale = np.sqrt(unit_area(name))  # all to area one
        inside.append(outline(x * scale, y * scale) < 0)
    for i, one in enumerate(inside):
        for other in inside[:i]:
            assert (one ^ other).sum() > 0.1 * (one | other).sum()


def test_drawing_takes_seconds():
    start = time.process_time()
    shapes.draw_split("train", 1000, seed=3)
    assert time.process_time() - start < 2.0  # 0.25 s when nothing else runs


def test_sheet_is_a_picture(tmp_path):
    shapes.draw_sheet(tmp_path / "sheet.png", rows=2, zoom=1)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (10 * 34 + 2, 2 * 34 + 2)
