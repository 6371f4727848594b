"""Published corrupted sets in small: both layouts, messages for broken ones, and the mean corruption error."""

import numpy as np
import pytest
from PIL import Image

from eval import published
from eval.published import ALEXNET_ERRORS, Unchanged, mean_corruption_error, open_published
from train.data.pipeline import eval_stream

COUNT = 6  # pictures of each severity


@pytest.fixture
def cifar_c(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("fog", "gaussian_noise"):
        np.save(tmp_path / f"{name}.npy", rng.integers(0, 256, (5 * COUNT, 8, 8, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.tile(np.arange(COUNT, dtype=np.uint8), 5))
    return tmp_path


@pytest.fixture
def imagenet_c(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("noise/shot_noise", "frost"):
        for severity in range(1, 6):
            for class_name in ("n02", "n01", "n03"):
                folder = tmp_path / name / str(severity) / class_name
                folder.mkdir(parents=True)
                for number in range(4):
                    pixels = rng.integers(0, 256, (16, 16, 3), np.uint8)
                    Image.fromarray(pixels).save(folder / f"{number}.JPEG", quality=95)
    return tmp_path


def test_arrays_hold_the_severities_in_order(cifar_c):
    found = open_published(cifar_c, dataset_labels=np.arange(COUNT))
    assert list(found) == ["gaussian_noise", "fog"]  # as in NAMES
    whole = np.load(cifar_c / "fog.npy")
    for severity in range(1, 6):
        split = found["fog"].split(severity)
        np.testing.assert_array_equal(
            split.images, whole[(severity - 1) * COUNT : severity * COUNT]
        )
        np.testing.assert_array_equal(split.labels, np.arange(COUNT))
    few = found["fog"].split(4, limit=2)
    np.testing.assert_array_equal(few.images, whole[3 * COUNT : 3 * COUNT + 2])
    assert len(found["fog"].split(4, limit=99)) == COUNT


def test_arrays_are_mapped_not_read(cifar_c):
    images = open_published(cifar_c)["fog"].split(1).images
    assert isinstance(images, np.memmap)
    assert not images.flags.writeable


def test_arrays_stream_unchanged(cifar_c):
    split = open_published(cifar_c)["fog"].split(2)
    batches = list(eval_stream(split, image_size=8, batch_size=4, transform=Unchanged(8)))
    rows = np.concatenate([b["image"][b["mask"]] for b in batches])
    np.testing.assert_array_equal(rows, split.images)


def test_folders_are_found_one_level_down_and_stream_unchanged(imagenet_c):
    found = open_published(imagenet_c)
    assert list(found) == ["shot_noise", "frost"]
    split = found["shot_noise"].split(3)
    assert len(split) == 12
    batches = list(eval_stream(split, image_size=16, batch_size=12, transform=Unchanged(16)))
    with Image.open(imagenet_c / "noise/shot_noise/3/n01/2.JPEG") as picture:
        np.testing.assert_array_equal(batches[0]["image"][2], np.asarray(picture))
    np.testing.assert_array_equal(batches[0]["label"], np.repeat([0, 1, 2], 4))


def test_folders_follow_the_classes_of_the_model(imagenet_c):
    found = open_published(imagenet_c, class_names=("n03", "n01"))
    split = found["frost"].split(1, limit=4)  # two of each class
    with Image.open(imagenet_c / "frost/1/n03/0.JPEG") as picture:
        np.testing.assert_array_equal(split[0]["image"], np.asarray(picture))
    assert [split[i]["label"] for i in range(4)] == [0, 0, 1, 1]
    with pytest.raises(ValueError, match=r"missing \['n07'\]"):
        open_published(imagenet_c, class_names=("n01", "n07"))["frost"].split(1)


def test_pictures_of_another_size_are_refused(imagenet_c):
    record = open_published(imagenet_c)["frost"].split(1)[0]
    with pytest.raises(ValueError, match="expected published pictures of 24x24, got 16x16"):
        Unchanged(24)(record)


def test_missing_labels(cifar_c):
    (cifar_c / "labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"labels\.npy"):
        open_published(cifar_c)


def test_labels_of_another_set(cifar_c):
    with pytest.raises(ValueError, match="5 of 6 differ"):
        open_published(cifar_c, dataset_labels=np.zeros(COUNT))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((30, 8, 8, 3), np.float32), r"expected uint8 \[N, H, W, C\], got float32"),
        (np.zeros((30, 8, 8), np.uint8), r"got uint8 \[30, 8, 8\]"),
        (np.zeros((29, 8, 8, 3), np.uint8), "each of 5 severities, got 29"),
        (np.zeros((25, 8, 8, 3), np.uint8), "expected 25 labels.*got 30"),
        (np.array([{}]), "expected an array in NumPy's format"),
    ],
)
def test_arrays_of_another_form(cifar_c, array, message):
    np.save(cifar_c / "fog.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        open_published(cifar_c)


def test_missing_severities(imagenet_c):
    (imagenet_c / "frost" / "4").rename(imagenet_c / "frost" / "four")
    with pytest.raises(ValueError, match=r"frost.*missing \[4\]"):
        open_published(imagenet_c)


def test_unknown_severity_and_limit(cifar_c):
    fog = open_published(cifar_c)["fog"]
    with pytest.raises(ValueError, match="expected one of 1, 2, 3, 4, 5, got 6"):
        fog.split(6)
    with pytest.raises(ValueError, match="positive"):
        fog.split(1, limit=0)


def test_nothing_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"NAME\.npy.*found \[\]"):
        open_published(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        open_published(tmp_path / "absent")


def test_alexnet_has_an_error_of_100():
    assert mean_corruption_error(ALEXNET_ERRORS) == pytest.approx(100)
    halved = {name: error / 2 for name, error in ALEXNET_ERRORS.items()}
    assert mean_corruption_error(halved | {"saturate": 1.0}) == pytest.approx(50)
    # Each corruption weighs the same, whatever AlexNet's error: one alone counts 1 / 15.
    assert mean_corruption_error(halved | {"fog": ALEXNET_ERRORS["fog"]}) == pytest.approx(
        50 + 50 / 15
    )


def test_the_mean_error_needs_every_corruption():
    assert set(ALEXNET_ERRORS) < set(published.NAMES)
    some = {name: 0.5 for name in ALEXNET_ERRORS if name not in ("fog", "frost")}
    with pytest.raises(ValueError, match="none for frost, fog"):
        mean_corruption_error(some)
    with pytest.raises(ValueError, match=r"snow in \[0, 1\], got 57"):
        mean_corruption_error(ALEXNET_ERRORS | {"snow": 57})
