"""The images of a report: which versions of them are kept, and when the file is written again."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

import isvs
from eval import figures, samples
from eval.options import Options


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the samples of a made-up network; what takes long to compile is replaced."""

    def encode(images):
        zeros = jnp.zeros(images.shape[:-1], jnp.uint8)
        return isvs.ScaleSpace(images, zeros[:, 1:], zeros[:, :, 1:])

    def explain(graph, params, stats, labels, versions, *, resize):
        pictures = [np.rint(255 * np.asarray(version)) for version in versions.values()]
        return np.stack(pictures, axis=1)[:, :, None].astype(np.uint8)

    monkeypatch.setattr(isvs, "encode", encode)
    monkeypatch.setattr(
        isvs, "smooth", lambda images, level, **_: images * {0.4: 0.5, "auto": 0.25}[level]
    )
    monkeypatch.setattr(figures, "explanation_panels", explain)
    pixels = np.full((3, 4, 4, 3), 200, np.uint8)
    subject = types.SimpleNamespace(
        sparsity=0.6,
        defend=lambda images: images * 0.75,
        weights=(None, None),
        forward=types.SimpleNamespace(graph=None, resize=None),
        limited=lambda count: range(min(count, 3)),
        batches=lambda *_, **__: iter([{"image": pixels, "label": np.arange(3)}]),
    )

    def act(*preprocess, **options):
        chosen = Options(run=tmp_path, preprocess=preprocess, samples=2, **options)
        samples.write_samples(subject, chosen, tmp_path)
        with np.load(tmp_path / samples.SAMPLES) as file:
            return {name: file[name] for name in file.files}

    return act


def test_each_preprocessing_is_a_row(write):
    found = write("none", "auto", "soft")
    assert found["panel_rows"].tolist() == ["original", "blurred", "soft", "automatic"]
    assert found["images"].shape == (2, 4, 4, 3)
    # A flat image stays as it is when it is blurred.
    assert found["panels"][:, :, 0, 0, 0, 0].tolist() == [[200, 200, 100, 50]] * 2


def test_the_file_is_written_again_only_for_more_columns(write, tmp_path):
    path = tmp_path / samples.SAMPLES
    write("none", "paper")
    first = path.stat()
    for fewer in (("none", "paper"), ("paper",), ("none",)):
        write(*fewer)
    assert path.stat().st_ino == first.st_ino
    found = write("auto")
    words = ["original", "blurred", "smoothed (paper)", "automatic"]
    assert found["panel_rows"].tolist() == words  # what was there stays
    assert found["preprocess"].tolist() == ["none", "paper", "auto"]
    assert [file.name for file in tmp_path.iterdir()] == [samples.SAMPLES]


def test_a_file_of_an_earlier_version_has_two_columns(write, tmp_path):
    path = tmp_path / samples.SAMPLES
    earlier = {
        name: value for name, value in write("none", "paper").items() if name != "preprocess"
    }
    np.savez(path, **earlier)
    before = path.read_bytes()
    write("none", "paper")
    assert path.read_bytes() == before
    assert write("soft")["preprocess"].tolist() == ["none", "paper", "soft"]


def test_a_file_that_cannot_be_read_is_written_again(write, tmp_path):
    (tmp_path / samples.SAMPLES).write_bytes(b"PK broken")
    assert write("soft")["panel_rows"].tolist() == ["original", "blurred", "soft"]
