import dataclasses
import io
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tarfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from isvs._command import NotInstalledError
from train.data import cifar, folder, tfds_source
from train.data.dataset import ArraySplit, Dataset, StreamSplit
from train.data.sources import CHOICES, open_source

PER_FILE = 7


@pytest.fixture
def small_cifar(monkeypatch):
    """The official layouts with 7 pictures in each file."""
    for name, layout in cifar.LAYOUTS.items():
        small = dataclasses.replace(
            layout,
            train_files=dict.fromkeys(layout.train_files, PER_FILE),
            test_files=dict.fromkeys(layout.test_files, PER_FILE),
        )
        monkeypatch.setitem(cifar.LAYOUTS, name, small)


def write_cifar(data_dir, name):
    """Writes random pictures as the official folder; returns images and last label by file."""
    layout = cifar.LAYOUTS[name]
    rng = np.random.default_rng(0)
    root = data_dir / layout.folder
    root.mkdir(parents=True)
    written = {}
    for file_name in layout.train_files | layout.test_files:
        images = rng.integers(0, 256, (PER_FILE, 32, 32, 3), np.uint8)
        labels = rng.integers(0, 10, (PER_FILE, layout.label_bytes)).astype(np.uint8)
        planes = images.transpose(0, 3, 1, 2).reshape(PER_FILE, -1)
        (root / file_name).write_bytes(np.concatenate([labels, planes], axis=1).tobytes())
        written[file_name] = images, labels[:, -1]
    names = "\n".join(f"thing{i}" for i in range(layout.num_classes))
    (root / layout.names_file).write_text(names + "\n")
    if name == "cifar100":
        coarse = "\n".join(f"group{i}" for i in range(20))
        (root / "coarse_label_names.txt").write_text(coarse + "\n")
    return root, written


def pack(root, archive):
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, arcname=root.name)


def write_picture(path, size=(12, 9), value=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 255 - value)).save(path)


def assert_same(one: Dataset, other: Dataset):
    for split in ("train", "test"):
        a, b = getattr(one, split), getattr(other, split)
        assert (a.images == b.images).all() and (a.labels == b.labels).all()
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("name", ["", "cifar", "tfds:", "npz:", "folder:", "shapes:x", "mnist"])
def test_unknown_names_list_the_choices(name):
    with pytest.raises(ValueError, match="unknown data set") as caught:
        open_source(name)
    assert all(choice in str(caught.value) for choice in CHOICES)


@pytest.mark.parametrize(
    "option", [{"limit_train": 0}, {"limit_test": -1}, {"seed": -1}, {"image_size": 0}]
)
def test_bad_options_are_named(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        open_source("shapes", **option)


def test_shapes_by_name_and_its_size_is_fixed():
    dataset = open_source("shapes", limit_train=100, limit_test=20, image_size=32)
    assert (len(dataset.train), len(dataset.test)) == (100, 20)
    assert dataset.in_memory
    with pytest.raises(ValueError, match=r"\[32, 32, 3\] and is not resized, got 64"):
        open_source("shapes", limit_train=10, limit_test=10, image_size=64)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_folder_and_archive_agree(tmp_path, small_cifar, name):
    layout = cifar.LAYOUTS[name]
    root, written = write_cifar(tmp_path / "a", name)
    dataset = open_source(name, data_dir=tmp_path / "a")
    images, labels = zip(*(written[f] for f in layout.train_files), strict=True)
    assert (dataset.train.images == np.concatenate(images)).all()
    assert (dataset.train.labels == np.concatenate(labels)).all()
    assert dataset.class_names[1] == "thing1" and dataset.num_classes == layout.num_classes
    assert_same(dataset, open_source(name, data_dir=root))  # the folder itself may be named
    (tmp_path / "b").mkdir()
    pack(root, tmp_path / "b" / layout.archive)
    assert_same(dataset, open_source(name, data_dir=tmp_path / "b"))
    assert [p.name for p in (tmp_path / "b").iterdir()] == [layout.archive]  # nothing unpacked
    limited = open_source(name, data_dir=root, limit_train=3, limit_test=2)
    assert (limited.train.images == dataset.train.images[:3]).all() and len(limited.test) == 2
    assert limited.fingerprint != dataset.fingerprint


def test_damaged_cifar_is_reported(tmp_path, small_cifar):
    root, _ = write_cifar(tmp_path, "cifar10")
    pack(root, tmp_path / "cifar-10-binary.tar.gz")
    test_file = root / "test_batch.bin"
    content = test_file.read_bytes()
    test_file.write_bytes(content[:-3073])  # a whole picture less: only the size tells
    expected, got = PER_FILE * 3073, (PER_FILE - 1) * 3073
    with pytest.raises(ValueError, match=rf"test_batch.bin: expected {expected}.*got {got}"):
        open_source("cifar10", data_dir=tmp_path)
    test_file.unlink()
    with pytest.raises(ValueError, match=r"expected a file test_batch.bin"):
        open_source("cifar10", data_dir=tmp_path)
    shutil.rmtree(root)
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-5000])
    with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz: damaged or cut short"):
        open_source("cifar10", data_dir=tmp_path)


def test_label_outside_the_classes_is_reported(tmp_path, small_cifar):
    root, _ = write_cifar(tmp_path, "cifar10")
    content = bytearray((root / "test_batch.bin").read_bytes())
    content[0] = 77
    (root / "test_batch.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"labels from 0 to 9, got . to 77"):
        open_source("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tfds:mnist"])
def test_without_network_and_data_the_error_is_quick_and_helpful(tmp_path, monkeypatch, name):
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(tfds_source, "reachable", lambda host: False)
    start = time.monotonic()
    with pytest.raises(FileNotFoundError, match="--dataset shapes") as caught:
        open_source(name, data_dir=tmp_path)
    assert time.monotonic() - start < 10
    assert str(tmp_path) in str(caught.value)
    if name == "cifar10":
        assert "cifar-10-binary.tar.gz" in str(caught.value)
        assert "cifar-10-batches-bin" in str(caught.value)


@pytest.mark.parametrize("name", ["cifar100", "tfds:mnist"])
def test_without_tfds_the_error_names_the_extra_and_the_places(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(NotInstalledError, match=r"pip install -e '.\[tfds\]'") as caught:
        open_source(name, data_dir=tmp_path)
    assert str(caught.value).startswith(name.removeprefix("tfds:"))
    if name == "cifar100":
        assert str(tmp_path / "cifar-100-binary.tar.gz") in str(caught.value)


def test_reachable_asks_the_network_once(monkeypatch):
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert tfds_source.reachable("127.0.0.1", port)
    assert not tfds_source.reachable("127.0.0.1", port)

    def hang(*_, **__):  # as a name look-up may
        time.sleep(1)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", hang)
    start = time.monotonic()
    assert not tfds_source.reachable("127.0.0.1", port, seconds=0.05)
    assert time.monotonic() - start < 0.9


def test_unknown_tfds_name_suggests_others(tmp_path):
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(ValueError, match=r"no data set 'cifar11': did you mean .*cifar10"):
        open_source("tfds:cifar11", data_dir=tmp_path)


PREPARE = """
import sys, pathlib
import tensorflow_datasets as tfds
from train.data import sources, tfds_source
source, target = sys.argv[1:]
tfds.download.DownloadManager.download_and_extract = lambda self, url: source
tfds_source.reachable = lambda host: True
assert len(sources.open_source("cifar10", data_dir=pathlib.Path(target)).train) == 35
"""


def test_tfds_is_prepared_once_and_read_without_tensorflow(tmp_path, small_cifar, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")
    if not any((Path(p) / "tensorflow").is_dir() for p in sys.path):
        pytest.skip("preparing needs TensorFlow")
    write_cifar(tmp_path / "bin", "cifar10")
    target = tmp_path / "tfds"
    # TensorFlow stays out of this process, so that reading without it is put to the test.
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PREPARE), str(tmp_path / "bin"), str(target)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    had_tensorflow = "tensorflow" in sys.modules
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", None)
    prepared = open_source("cifar10", data_dir=target)
    assert_same(prepared, open_source("cifar10", data_dir=tmp_path / "bin"))
    shuffled = open_source("tfds:cifar10", data_dir=target, limit_train=20)
    known = {image.tobytes(): label for image, label in zip(*vars_of(prepared.train), strict=True)}
    assert all(known[i.tobytes()] == y for i, y in zip(*vars_of(shuffled.train), strict=True))
    assert len(shuffled.train) == 20 and shuffled.name == "tfds:cifar10"

    monkeypatch.setattr(tfds_source, "MOST_BYTES_IN_MEMORY", 0)
    streamed = open_source("tfds:cifar10", data_dir=target, image_size=16, limit_test=3)
    assert not streamed.in_memory and streamed.image_shape == (16, 16, 3)
    assert len(streamed.test) == 3
    again = pickle.loads(pickle.dumps(streamed.train))  # noqa: S301 - as worker processes do
    assert isinstance(again, StreamSplit) and again.fingerprint == streamed.train.fingerprint
    record = again[5]
    assert known[record["image"].tobytes()] == record["label"] and record["index"] == 5
    assert ("tensorflow" in sys.modules) == had_tensorflow


def vars_of(split: ArraySplit):
    return split.images, split.labels


def save_npz(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "train_x": rng.integers(0, 256, (6, 4, 5, 3), np.uint8),
        "train_y": np.array([0, 1, 2, 0, 1, 2]),
        "test_x": rng.integers(0, 256, (2, 4, 5, 3), np.uint8),
        "test_y": np.array([[3], [1]], np.uint8),
    }
    arrays.update(changes)
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return arrays


def test_npz_round_trip(tmp_path):
    arrays = save_npz(tmp_path / "a.npz")
    dataset = open_source(f"npz:{tmp_path / 'a.npz'}")
    assert (dataset.train.images == arrays["train_x"]).all()
    assert dataset.test.labels.tolist() == [3, 1]
    assert dataset.num_classes == 4 and dataset.image_shape == (4, 5, 3)
    record = dataset.train[4]
    assert record["label"] == 1 and (record["image"] == arrays["train_x"][4]).all()
    grey = {"train_x": arrays["train_x"][..., 0], "test_x": arrays["test_x"][..., 0]}
    save_npz(tmp_path / "grey.npz", **grey)
    assert open_source(f"npz:{tmp_path / 'grey.npz'}").image_shape == (4, 5, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_y": None}, r"lacks \['test_y'\]"),
        ({"train_x": np.zeros((6, 4, 5, 3))}, r"expected uint8 .* got float64"),
        ({"train_y": np.zeros(6)}, r"expected integers in train_y, got float64"),
        ({"train_y": np.zeros(5, int)}, r"expected int32 \[6\].* got int32 \[5\]"),
        ({"train_y": np.full(6, -1)}, r"labels from 0 to .* got -1"),
        ({"test_x": np.zeros((2, 4, 4, 3), np.uint8)}, r"test images of shape \[4, 5, 3\]"),
        ({"train_y": np.array([{}] * 6, object)}, r"plain arrays.*pickle"),
        ({"test_x": np.zeros((0, 4, 5, 3), np.uint8), "test_y": np.zeros(0, int)}, "no images"),
    ],
)
def test_bad_npz_is_reported(tmp_path, changes, message):
    save_npz(tmp_path / "bad.npz", **changes)
    with pytest.raises(ValueError, match=message):
        open_source(f"npz:{tmp_path / 'bad.npz'}")


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.95])
def test_damaged_npz_is_reported(tmp_path, keep):
    path = tmp_path / "cut.npz"
    save_npz(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep < 1 else keep])
    with pytest.raises(ValueError, match=r"cut.npz: expected an .npz file"):
        open_source(f"npz:{path}")
    single = io.BytesIO()
    np.save(single, np.zeros(3))
    path.write_bytes(single.getvalue())
    with pytest.raises(ValueError, match=r"cut.npz: expected an .npz file"):
        open_source(f"npz:{path}")
    with pytest.raises(FileNotFoundError, match=r"absent\.npz"):
        open_source(f"npz:{tmp_path / 'absent.npz'}")


@pytest.mark.parametrize("test_name", ["val", "test"])
def test_folder_splits_and_labels(tmp_path, test_name):
    for label, class_name in enumerate(["ant", "bee", "cat"]):
        for i in range(4):
            write_picture(tmp_path / "train" / class_name / f"{i}.png", value=label)
        write_picture(tmp_path / test_name / class_name / "x.JPEG")
        (tmp_path / "train" / class_name / "notes.txt").write_text("not a picture")
    dataset = open_source(f"folder:{tmp_path}", image_size=8)
    assert dataset.class_names == ("ant", "bee", "cat")
    assert (len(dataset.train), len(dataset.test)) == (12, 3)
    assert dataset.image_shape == (8, 8, 3) and not dataset.in_memory
    record = dataset.train[5]
    assert record["image"].shape == (9, 12, 3) and record["image"].dtype == np.uint8
    assert record["label"] == 1 == record["image"][0, 0, 0] and record["index"] == 5
    limited = open_source(f"folder:{tmp_path}", limit_train=6)
    assert [limited.train[i]["label"] for i in range(6)] == [0, 0, 1, 1, 2, 2]
    assert limited.image_shape == (224, 224, 3)
    assert limited.train.fingerprint != dataset.train.fingerprint
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy")
    copy = open_source(f"folder:{tmp_path.parent / f'{tmp_path.name}-copy'}")
    assert copy.fingerprint == dataset.fingerprint  # the content counts, not the place
    write_picture(tmp_path / "train" / "bee" / "1.png", size=(30, 30))
    assert open_source(f"folder:{tmp_path}").fingerprint != dataset.fingerprint


def test_folder_errors_say_what_is_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folders train and val \(or test\)"):
        open_source(f"folder:{tmp_path / 'absent'}")
    write_picture(tmp_path / "train" / "ant" / "a.png")
    with pytest.raises(FileNotFoundError, match=r"found \['train'\]"):
        open_source(f"folder:{tmp_path}")
    (tmp_path / "val" / "ant").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"val: expected pictures .* found none"):
        open_source(f"folder:{tmp_path}")
    write_picture(tmp_path / "val" / "wasp" / "a.png")
    with pytest.raises(ValueError, match=r"got also \['wasp'\]"):
        open_source(f"folder:{tmp_path}")
    with pytest.raises(ValueError, match="imagenet100: expected --data-dir"):
        open_source("imagenet100")


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("keep", [0, 0.3, 0.6])
def test_corrupt_picture_is_named(tmp_path, suffix, keep):
    path = tmp_path / f"broken.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(ValueError, match=rf"broken.{suffix}: cannot decode"):
        folder.decode_picture(path)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P"])
def test_all_pictures_become_rgb(tmp_path, mode):
    suffix = "jpg" if mode in ("L", "CMYK") else "png"
    Image.new("RGB", (5, 4), (255, 255, 255)).convert(mode).save(tmp_path / f"a.{suffix}")
    assert (folder.decode_picture(tmp_path / f"a.{suffix}") > 250).all()


def test_imagenet100_keeps_the_list_out_of_the_whole(tmp_path):
    wanted = folder.imagenet100_classes()
    assert len(set(wanted)) == 100 and all(len(w) == 9 and w[0] == "n" for w in wanted)
    others = [f"n{i:08d}" for i in range(900)]
    for split in ("train", "val"):
        for class_name in (*wanted, *others):
            (tmp_path / split / class_name).mkdir(parents=True)
        for class_name in (wanted[0], wanted[99], others[0]):
            write_picture(tmp_path / split / class_name / "a.jpg")
    dataset = open_source("imagenet100", data_dir=tmp_path)
    assert dataset.class_names == wanted and len(dataset.train) == 2
    assert dataset.train[1]["label"] == 99
    assert open_source(f"folder:{tmp_path}").num_classes == 1000
    (tmp_path / "train" / wanted[3]).rmdir()
    (tmp_path / "train" / "n99999999").mkdir()
    with pytest.raises(ValueError, match=wanted[3]):
        open_source("imagenet100", data_dir=tmp_path)


def test_imagenet100_takes_the_folders_there(tmp_path):
    for class_name in ("n01440764", "n02102040"):
        write_picture(tmp_path / "train" / class_name / "a.jpg")
        write_picture(tmp_path / "val" / class_name / "b.jpg")
    dataset = open_source("imagenet100", data_dir=tmp_path)
    assert dataset.class_names == ("n01440764", "n02102040")


def test_real_cifar10():
    place = os.environ.get("ISVS_CIFAR10")
    if not place:
        pytest.skip("ISVS_CIFAR10 names no folder with the real data")
    dataset = open_source("cifar10", data_dir=Path(place))
    assert dataset.train.images.shape == (50_000, 32, 32, 3)
    assert (np.bincount(dataset.train.labels) == 5000).all()
    assert (np.bincount(dataset.test.labels) == 1000).all()
    assert dataset.class_names[:2] == ("airplane", "automobile")
    mean = dataset.train.images.mean((0, 1, 2)) / 255
    np.testing.assert_allclose(mean, [0.4914, 0.4822, 0.4465], atol=1e-4)
