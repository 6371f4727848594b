"""Figures: what they are drawn from, and that files appear whole."""

import dataclasses
import functools
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from flax import nnx
from matplotlib.figure import Figure
from PIL import Image

import isvs
from eval import frequency
from eval.figures import FIGURES, base, explanation_panels, fourier, panels, regions, spectra
from train import models
from train.config import Config

SIGNATURES = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


def is_whole(path: Path) -> bool:
    """A file of its kind with content, and nothing unfinished beside it."""
    content = path.read_bytes()
    ends = {".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF\n", ".svg": b"</svg>\n"}[path.suffix]
    begins = content.startswith(SIGNATURES[path.suffix])
    return begins and content.endswith(ends) and not list(path.parent.glob(".*"))


@pytest.fixture
def data(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    arrays = {
        "train_x": rng.integers(0, 256, (2, 16, 16, 3), np.uint8),
        "train_y": np.array([0, 1]),
        "test_x": rng.integers(0, 256, (5, 16, 16, 3), np.uint8),
        "test_y": np.array([0, 1, 2, 0, 1]),
    }
    np.savez(tmp_path / "data.npz", **arrays)
    return f"npz:{tmp_path / 'data.npz'}"


@functools.cache
def tiny():
    def make():
        return models.build("_tiny", num_classes=3, image_size=16, rngs=nnx.Rngs(0))

    # All weights in one compilation.
    return nnx.merge(nnx.graphdef(nnx.eval_shape(make)), jax.jit(lambda: nnx.state(make()))())


def draw(name, **options) -> Path:
    return FIGURES[name].run(FIGURES[name].Options(**options))


@pytest.mark.parametrize("name", FIGURES)
def test_options_are_documented_and_parsed(name, capsys):
    options = FIGURES[name].Options
    assert dataclasses.is_dataclass(options) and FIGURES[name].help
    with pytest.raises(SystemExit) as ended:
        tyro.cli(options, args=["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for field in dataclasses.fields(options):
        assert f"{field.name}:" in (options.__doc__ or ""), field.name
        assert f"--{field.name.replace('_', '-')}" in text or "positional" in text


@pytest.mark.parametrize("ending", SIGNATURES)
def test_files_are_whole(tmp_path, ending):
    path = tmp_path / "new" / f"figure{ending}"

    def simple() -> Figure:
        figure = Figure(figsize=(1, 1))
        figure.subplots().plot([1, 2])
        return figure

    assert base.drawn(simple, path) == path
    assert is_whole(path)
    first = path.read_bytes()
    base.drawn(simple, path)
    assert path.read_bytes() == first

    def broken() -> Figure:
        raise RuntimeError("no figure")

    with pytest.raises(RuntimeError):
        base.drawn(broken, path)
    assert path.read_bytes() == first and is_whole(path)


def test_other_endings_are_refused_before_the_work(tmp_path):
    pictures = ("path", "regions", "cleaning")
    required = {name: {"image": Path("absent.png")} for name in pictures}
    required["spectra"] = {"run": Path("absent")}
    for name in FIGURES:
        with pytest.raises(ValueError, match=r"--out: expected a file ending in \.png, \.pdf"):
            draw(name, out=tmp_path / "figure.bmp", **required.get(name, {}))


@pytest.fixture
def picture(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def test_path(tmp_path, picture):
    out = draw("path", image=picture, levels=(0.5, 1.0), out=tmp_path / "f.png")
    assert is_whole(out)
    with Image.open(out) as picture:
        width, height = picture.size
    assert width == pytest.approx(200 * base.PAGE, abs=2) and height > 400
    with pytest.raises(ValueError, match=r"absent\.png: no such file"):
        draw("path", image=tmp_path / "absent.png", out=tmp_path / "f.png")
    with pytest.raises(ValueError, match=r"--levels: expected numbers from 0 to 1, got \(2\.0,\)"):
        draw("path", image=picture, levels=(2.0,), out=tmp_path / "f.png")


def test_regions(tmp_path, picture):
    image = np.zeros((4, 6, 1), np.float32)
    image[:, 2:] = 0.3
    image[1:3, 4:] = 1.0
    space = isvs.encode(image)
    entered = regions.entry_map(space)
    # The steepest edges enter first, and flat parts last.
    assert entered[1, 4] == entered[2, 3] < entered[3, 1] == entered[0, 2] < entered[0, 0] == 1
    assert titles(regions.draw_regions(space, 0.9))[2] == "3 regions at level 0.9"
    assert is_whole(draw("regions", image=picture, out=tmp_path / "f.png"))
    with pytest.raises(ValueError, match="--level: expected a number from 0 to 1, got 60"):
        draw("regions", image=picture, level=60.0, out=tmp_path / "f.png")


def test_cleaning(tmp_path, picture, monkeypatch):
    drawn = {}
    monkeypatch.setattr(base, "drawn", lambda draw, path, *args: drawn.update(figure=draw(*args)))
    draw("cleaning", image=picture, sigma=0.0, impulses=0.0, out=tmp_path / "f.png")
    panels_of_a_row = titles(drawn["figure"])[:5]
    assert panels_of_a_row[0] == "image" and panels_of_a_row[1].startswith("Gaussian 0, 1")
    assert len(drawn["figure"].axes) == 10
    with pytest.raises(ValueError, match=r"--impulses from 0 to 1, got 0\.08 and 6"):
        draw("cleaning", image=picture, impulses=6.0, out=tmp_path / "f.png")


def test_fourier(tmp_path, data, monkeypatch):
    images = np.load(tmp_path / "data.npz")["test_x"]
    monkeypatch.setattr(fourier, "_BATCH", 2)  # five images: the last batch is filled up
    got = fourier.mean_amplitudes(images, 0.0)
    plain = images.astype(np.float32) / 255
    smoothed = np.broadcast_to(plain.mean((1, 2), keepdims=True), plain.shape)  # at level 0
    for spectrum, version in zip(got, (plain, smoothed, plain - smoothed), strict=True):
        amplitude = np.abs(np.fft.fft2(version, axes=(1, 2), norm="ortho")).mean((0, 3))
        np.testing.assert_allclose(spectrum, np.fft.fftshift(amplitude), rtol=1e-3, atol=1e-5)
    assert is_whole(draw("fourier", dataset=data, out=tmp_path / "fourier.svg"))


def test_components(tmp_path, data):
    out = draw("components", dataset=data, count=3, radius=3, out=tmp_path / "components.png")
    assert is_whole(out)


def test_panels():
    images = jax.random.uniform(jax.random.key(0), (2, 16, 16, 3))
    graph, params, stats = nnx.split(tiny(), nnx.Param, nnx.BatchStat)
    versions = {
        "original": images,
        "smoothed": images * 0.5,
        "soft": images**2,
        "black": 0 * images,
    }
    labels = jnp.array([0, 2])
    pictures = explanation_panels(graph, params, stats, labels, versions)
    assert pictures.shape == (2, 4, 3, 16, 16, 3) and pictures.dtype == np.uint8
    for row, version in enumerate(versions.values()):
        np.testing.assert_array_equal(pictures[:, row, 0], np.rint(255 * np.asarray(version)))
    assert pictures[:, :3, 1:].std() > 0
    explain = functools.partial(panels._explain, graph, resize=24)
    heat, by_pixel = jax.eval_shape(explain, params, stats, images, labels)
    assert heat.shape == by_pixel.shape == (2, 16, 16)


def test_a_network_that_blurs_by_itself_is_shown_one_blur():
    images = jax.random.uniform(jax.random.key(0), (1, 8, 8, 3))
    blurs = types.SimpleNamespace(sparsity=None, defend=lambda images: images * 0.5)
    found = panels.versions(blurs, ("none", "paper"), images)
    assert list(found) == ["original", "blurred (paper)"]
    np.testing.assert_allclose(found["blurred (paper)"], images * 0.5)
    smooths = types.SimpleNamespace(sparsity=0.6, defend=lambda images: images * 0.5)
    found = panels.versions(smooths, ("none", "paper"), images)
    assert list(found) == ["original", "blurred", "smoothed (paper)"]
    assert 0 < found["blurred"].var() < images.var()


def test_colours():
    values = np.array([[[-2.0, 0.0, 2.0]]])
    (cold, zero, hot), *_ = panels.diverging(values)[0]
    np.testing.assert_allclose(zero, [247 / 255] * 3, atol=1e-6)
    assert cold[2] > cold[0] and hot[0] > hot[2]
    np.testing.assert_allclose(panels.diverging(np.zeros((1, 2, 2))), 247 / 255, atol=1e-6)
    grey = np.full((1, 1, 2, 3), 0.5)
    cool, warm = panels.overlaid(grey, np.array([[[0.0, 1.0]]]))[0, 0]
    np.testing.assert_allclose(cool, 0.5)
    assert warm[0] > 0.8 > 0.3 > warm[2]


def test_explain(tmp_path, data, monkeypatch):
    given = {}

    def record(graph, params, stats, labels, versions, *, resize):
        given.update(versions, labels=labels)
        return np.zeros((len(labels), len(versions), 3, 16, 16, 3), np.uint8)

    monkeypatch.setattr(panels, "explanation_panels", record)  # it has a test of its own
    models.save(tiny(), tmp_path / "weights.safetensors")
    options = {"model": "_tiny", "dataset": data, "sparsity": 0.0}
    options["weights"] = tmp_path / "weights.safetensors"
    assert is_whole(draw("explain", **options, first=2, count=9, out=tmp_path / "explain.png"))
    arrays = np.load(tmp_path / "data.npz")
    np.testing.assert_allclose(given["original"], arrays["test_x"][2:] / 255, atol=1e-6)
    np.testing.assert_array_equal(given["labels"], arrays["test_y"][2:])
    means = given["original"].mean((1, 2), keepdims=True)
    flat = given["smoothed (paper)"] - means
    np.testing.assert_allclose(flat, jnp.zeros((3, 16, 16, 3)), atol=1e-5)
    assert 0 < given["blurred"].var() < given["original"].var()
    with pytest.raises(ValueError, match="--first: expected a number below 5, got 7"):
        draw("explain", **options, first=7, out=tmp_path / "explain.png")


def test_power_of_features():
    images = np.random.default_rng(0).integers(0, 256, (70, 16, 16, 3), np.uint8)
    graph, params, stats = nnx.split(tiny(), nnx.Param, nnx.BatchStat)
    power = spectra.feature_power(graph, (params, stats), images, "stem")
    run = jax.jit(functools.partial(models.apply, graph, train=False))
    features = np.asarray(run(params, stats, images.astype(np.float32) / 255)[1]["stem"])
    expected = np.square(np.abs(np.fft.fft2(features, axes=(1, 2)))).sum((0, 3))
    expected[0, 0] = 0
    np.testing.assert_allclose(power, np.fft.fftshift(expected / expected.sum()), rtol=1e-3)
    with pytest.raises(ValueError, match="--feature: expected one of stem, stage1, stage2"):
        spectra.feature_power(graph, (params, stats), images, "pre_logits")


def test_ratio_of_high_to_low():
    low, high = np.zeros((16, 16)), np.zeros((16, 16))
    low[8, 9], high[8, 12] = 3, 1
    assert spectra.high_to_low(low + high) == pytest.approx(1 / 3)
    assert np.isfinite(spectra.high_to_low(high))
    assert frequency.radial_profile(jnp.asarray(high)).argmax() == 4


def test_weights_over_time_are_those_of_the_run(run, tmp_path):
    config = Config.from_json((run / "config.json").read_text(), "config.json")
    before = sorted(path for path in run.rglob("*"))
    initial = models.build("_tiny", num_classes=10, image_size=32, rngs=nnx.Rngs(0))
    found = spectra.weights_over_time(run, config, initial)
    assert next(iter(found)) == "initial" and len(found) >= 2
    models.load(initial, run / "weights.safetensors")
    last = list(found.values())[-1]
    final = nnx.split(initial, nnx.Param, nnx.BatchStat)[1:]
    for ours, saved in zip(jax.tree.leaves(last), jax.tree.leaves(final), strict=True):
        np.testing.assert_array_equal(ours, saved)
    assert is_whole(draw("spectra", run=run, limit=8, out=tmp_path / "spectra.png"))
    assert sorted(path for path in run.rglob("*")) == before
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        draw("spectra", run=tmp_path, out=tmp_path / "spectra.png")
