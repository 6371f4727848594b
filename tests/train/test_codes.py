import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import isvs
from train import codes
from train.data.dataset import ArraySplit
from train.data.folder import FolderSplit

SHAPE = (8, 8, 3)


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    return ArraySplit(rng.integers(0, 256, (30, *SHAPE), np.uint8), np.zeros(30, np.int32))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(codes, "_PART_BYTES", 12 * 112)  # twelve rows
    monkeypatch.setattr(codes, "_PIECE_PIXELS", 5 * 64)  # five rows at a time


def open_codes(split, folder, **options):
    return codes.open_codes(split, SHAPE, label="test", cache_dir=folder, **options)


def files(folder):
    return sorted(folder.rglob("*.codes"))


def test_codes_are_those_of_the_library(split, tmp_path):
    table = open_codes(split, tmp_path)
    space = isvs.encode(jnp.asarray(split.images, jnp.float32) / 255)
    arrays = table.arrays()
    assert len(table) == 30 and len(files(tmp_path)) == 3
    assert (arrays["down"] == space.down).all() and (arrays["right"] == space.right).all()
    for row in (0, 11, 12, 29):
        assert (table[row]["down"] == arrays["down"][row]).all()
        assert (table[row]["right"] == arrays["right"][row]).all()


def test_codes_are_made_once(split, tmp_path, monkeypatch, capsys):
    first = open_codes(split, tmp_path).arrays()
    assert "encoding test: 30/30 images" in capsys.readouterr().err
    monkeypatch.setattr(codes, "_Encoder", None)  # would fail if called
    again = open_codes(split, tmp_path).arrays()
    assert all((first[name] == again[name]).all() for name in first)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "extend"])
def test_damage_is_found_and_mended_alone(damage, split, tmp_path, capsys):
    first = open_codes(split, tmp_path).arrays()
    stamps = [path.stat().st_mtime_ns for path in files(tmp_path)]
    victim = files(tmp_path)[1]
    data = bytearray(victim.read_bytes())
    data[7] ^= 1
    if damage == "remove":
        victim.unlink()
    else:
        whole = victim.read_bytes()
        victim.write_bytes({"flip": bytes(data), "cut": whole[:-3], "extend": whole + b"x"}[damage])
    capsys.readouterr()
    again = open_codes(split, tmp_path).arrays()
    assert all((first[name] == again[name]).all() for name in first)
    text = capsys.readouterr().err
    assert "12/12 images" in text and ("damaged" in text) == (damage != "remove")
    assert [path.stat().st_mtime_ns for path in files(tmp_path)][::2] == stamps[::2]


def test_other_data_and_solvers_have_their_own_codes(split, tmp_path):
    open_codes(split, tmp_path)
    open_codes(split, tmp_path, solver=isvs.Flow(ratio=1.2))
    changed = split.images.copy()
    changed[0, 0, 0, 0] ^= 1
    open_codes(ArraySplit(changed, split.labels), tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    open_codes(split, tmp_path, solver=isvs.Flow(block_pixels=64))  # the same numbers
    assert len(list(tmp_path.iterdir())) == 3


def test_an_interrupted_encoding_goes_on(split, tmp_path, monkeypatch, capsys):
    write = codes._write

    def write_two(path, data):
        if len(files(tmp_path)) == 2:
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(codes, "_write", write_two)
    with pytest.raises(KeyboardInterrupt):
        open_codes(split, tmp_path)
    monkeypatch.setattr(codes, "_write", write)
    capsys.readouterr()
    open_codes(split, tmp_path)
    assert "6/6 images" in capsys.readouterr().err
    assert not list(tmp_path.rglob(".part-*"))


def test_streamed_records_carry_their_codes(tmp_path):
    rng = np.random.default_rng(1)
    (tmp_path / "pictures" / "ant").mkdir(parents=True)
    for number in range(14):
        pixels = rng.integers(0, 256, (12, 15, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / "ant" / f"{number:02d}.png")
    split = FolderSplit(tmp_path / "pictures", ("ant",), limit=None)
    table = codes.open_codes(split, SHAPE, label="test", cache_dir=tmp_path / "cache")
    # As it reaches a worker process: by name of file, not by content.
    sent = pickle.dumps(codes.WithCodes(split, table, 8))
    assert len(sent) < 4000
    record = pickle.loads(sent)[13]  # noqa: S301 (our own bytes)
    assert record["image"].shape == SHAPE and record["index"] == 13
    space = isvs.encode(jnp.asarray(record["image"], jnp.float32) / 255)
    assert (record["down"] == space.down).all() and (record["right"] == space.right).all()
