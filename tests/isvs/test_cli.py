"""The command line: what comes out for every kind of picture, and what happens when something is wrong."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

import isvs
from isvs import _pictures
from isvs.__main__ import main

# One size for nearly everything: each new one is compiled for seconds.
HEIGHT, WIDTH = 9, 12
ORIENTATION = 0x0112


def noise(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def photo(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(noise(HEIGHT, WIDTH, dtype=np.uint16))
    if mode == "P":
        return photo("RGB").quantize(16)
    if mode == "1":
        return photo("L").convert("1")
    grey = mode in ("L", "LA")
    image = Image.fromarray(noise(HEIGHT, WIDTH) if grey else noise(HEIGHT, WIDTH, 3))
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(noise(HEIGHT, WIDTH)))
    return image if image.mode == mode else image.convert(mode)


def save(image: Image.Image, path: Path, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def smooth(*arguments: object) -> int:
    return main(["smooth", *map(str, arguments)])


def opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        return image


def assert_same(found: Image.Image, expected: Image.Image) -> None:
    assert (found.mode, found.size) == (expected.mode, expected.size)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def rejected(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "ending", "becomes"),
    [
        ("L", ".png", "L"),
        ("LA", ".png", "LA"),
        ("RGB", ".png", "RGB"),
        ("RGBA", ".png", "RGBA"),
        ("P", ".png", "RGB"),
        ("P", ".gif", "RGB"),
        ("1", ".png", "L"),
        ("I;16", ".png", "I;16"),
        ("I;16", ".tiff", "I;16"),
        ("CMYK", ".tiff", "RGB"),
        ("RGBA", ".tiff", "RGBA"),
        ("RGBA", ".webp", "RGBA"),
        ("RGB", ".bmp", "RGB"),
    ],
)
def test_level_1_gives_back_every_mode(
    tmp_path: Path, mode: str, ending: str, becomes: str
) -> None:
    options = {"lossless": True, "exact": True} if ending == ".webp" else {}
    source = save(photo(mode), tmp_path / f"in{ending}", **options)
    kept = ".png" if ending == ".gif" else ending
    target = tmp_path / f"out{kept}"
    assert smooth(source, "--sparsity", 1, "-o", target) == 0
    original = opened(source)
    assert_same(opened(target), original if original.mode == becomes else original.convert(becomes))


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("level", [0.6, "auto"])
def test_smoothing_is_that_of_the_library(tmp_path: Path, mode: str, level: float | str) -> None:
    source = save(photo(mode), tmp_path / "in.png")
    assert smooth(source, "--sparsity", level, "-o", tmp_path / "out.png") == 0
    pixels = np.asarray(photo(mode)).reshape(HEIGHT, WIDTH, -1)
    expected = np.asarray(isvs.smooth(np.float32(pixels / 255), level)) * 255
    found = np.asarray(opened(tmp_path / "out.png")).reshape(pixels.shape)
    np.testing.assert_allclose(found, expected, atol=0.501)
    assert (found != pixels).any()


def test_large_pictures_are_cleaned_however_strong_the_noise(tmp_path: Path) -> None:
    """A picture is for an eye; what a network would make of it does not count."""
    pixels = np.random.default_rng(0).normal(128, 40, (120, 130, 3)).clip(0, 255).astype(np.uint8)
    source = save(Image.fromarray(pixels), tmp_path / "in.png")
    assert smooth(source, "--sparsity", "auto", "-o", tmp_path / "out.png") == 0
    assert np.asarray(opened(tmp_path / "out.png")).std() < 0.7 * pixels.std()
    alone = isvs.smooth(np.float32(pixels / 255), "auto")
    np.testing.assert_array_equal(np.asarray(alone), np.float32(pixels / 255))


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_alpha_is_copied_and_hidden_colours_do_not_matter(tmp_path: Path, mode: str) -> None:
    pixels = np.array(photo(mode))
    pixels[:, :7, -1] = 0
    pixels[:, 7:, -1] |= 1
    results = []
    for colour in (0, 255):
        pixels[:, :7, :-1] = colour
        source = save(Image.fromarray(pixels), tmp_path / "in.png")
        assert smooth(source, "--sparsity", 0.5, "-o", tmp_path / "out.png") == 0
        found = np.asarray(opened(tmp_path / "out.png"))
        np.testing.assert_array_equal(found[..., -1], pixels[..., -1])
        np.testing.assert_array_equal(found[:, :7], pixels[:, :7])
        results.append(found[:, 7:])
    np.testing.assert_array_equal(*results)
    # The level counts the edges between visible pixels, though most of the picture is hidden. (Fewer than half differ:
    # an edge in the support joins pixels of one colour if they are tied by another way.)
    visible = results[0][..., :-1].astype(int)
    differ = [(np.diff(visible, axis=axis) != 0).any(axis=-1).ravel() for axis in (0, 1)]
    assert 0.2 < np.concatenate(differ).mean() < 0.55


def test_cleaning_is_not_moved_by_hidden_colours(tmp_path: Path) -> None:
    pixels = np.array(photo("RGBA"))
    pixels[:, :4, -1] = 0
    pixels[:, 4:, -1] |= 1
    results = []
    for colour in (0, 255):
        pixels[:, :4, :-1] = colour
        source = save(Image.fromarray(pixels), tmp_path / "in.png")
        assert smooth(source, "--sparsity", "auto", "-o", tmp_path / "out.png") == 0
        found = np.asarray(opened(tmp_path / "out.png"))
        np.testing.assert_array_equal(found[:, :4], pixels[:, :4])
        results.append(found[:, 4:])
    np.testing.assert_array_equal(*results)
    assert (results[0] != pixels[:, 4:]).any()


def test_hidden_pixels_do_not_hide_the_noise() -> None:
    """Three quarters of it are hidden: what can be seen is cleaned like a picture of its own."""
    noise_of = np.random.default_rng(0).normal(scale=20, size=(48, 24, 3))
    across = np.linspace(60, 200, 24)[:, None]
    pixels = np.rint(across + noise_of).clip(0, 255).astype(np.uint8)
    alpha = np.full((48, 24), 255, np.uint8)
    alpha[12:] = 0
    found = _pictures.cleaned(_pictures.Picture(pixels, alpha)).pixels
    np.testing.assert_array_equal(found[12:], pixels[12:])
    policy = isvs.AutoLevel(limit=np.inf, speckle=None)
    alone = 255 * np.asarray(isvs.smooth((pixels[:12] / 255).astype(np.float32), policy))
    assert np.abs(found[:12] - alone).max() < 1
    assert np.abs(alone - pixels[:12]).mean() > 5


def test_a_picture_that_is_all_hidden_stays(tmp_path: Path) -> None:
    image = photo("RGBA")
    image.putalpha(0)
    assert smooth(save(image, tmp_path / "in.png"), "-o", tmp_path / "out.png") == 0
    assert_same(opened(tmp_path / "out.png"), image)


def test_transparent_palette_becomes_rgba(tmp_path: Path) -> None:
    source = save(photo("P"), tmp_path / "in.png", transparency=3)
    assert smooth(source, "--sparsity", 1, "-o", tmp_path / "out.png") == 0
    assert_same(opened(tmp_path / "out.png"), opened(source).convert("RGBA"))


@pytest.mark.parametrize("ending", [".png", ".tiff"])
def test_pictures_are_turned_upright(tmp_path: Path, ending: str) -> None:
    upright = photo("RGB")
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # to be turned clockwise
    source = save(upright.transpose(Image.Transpose.ROTATE_90), tmp_path / f"in{ending}", exif=exif)
    assert smooth(source, "--sparsity", 1, "-o", tmp_path / "out.png") == 0
    found = opened(tmp_path / "out.png")
    assert_same(found, upright)
    assert ORIENTATION not in found.getexif()


def test_colour_profiles_are_kept_unless_they_are_those_of_cmyk(tmp_path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for mode, kept in (("RGB", profile), ("CMYK", None)):
        source = save(photo(mode), tmp_path / "in.tiff", icc_profile=profile)
        assert smooth(source, "-o", tmp_path / "out.png") == 0
        assert opened(tmp_path / "out.png").info.get("icc_profile") == kept


@pytest.mark.parametrize("shape", [(1, 1), (1, 5, 3)])
def test_tiny_pictures(tmp_path: Path, shape: tuple[int, ...]) -> None:
    source = save(Image.fromarray(noise(*shape)), tmp_path / "in.png")
    assert smooth(source, "--sparsity", 1, "-o", tmp_path / "out.png") == 0
    assert_same(opened(tmp_path / "out.png"), opened(source))


@pytest.mark.parametrize("mode", ["RGB", "I;16"])
def test_max_side(tmp_path: Path, mode: str) -> None:
    image = photo(mode).resize((3 * WIDTH, 3 * HEIGHT), Image.Resampling.NEAREST)
    source = save(image, tmp_path / "in.png")
    assert smooth(source, "--max-side", WIDTH, "-o", tmp_path / "out.png") == 0
    found = opened(tmp_path / "out.png")
    assert (found.mode, found.size) == (mode, (WIDTH, HEIGHT))


def test_16_bit_grey_becomes_8_bit_where_the_format_has_no_more(tmp_path: Path) -> None:
    source = save(photo("I;16"), tmp_path / "in.png")
    assert smooth(source, "--sparsity", 1, "-o", tmp_path / "out.bmp") == 0
    expected = np.rint(np.asarray(photo("I;16")) / 257).astype(np.uint8)
    assert_same(opened(tmp_path / "out.bmp"), Image.fromarray(expected))


def test_large_regions_keep_their_colour() -> None:
    # Sums in float32 would be off by 6 here, and by whole 8-bit levels for a large photograph.
    picture = _pictures.Picture(np.full((128, 128, 1), 30_001, np.uint16))
    (smoothed,) = _pictures.at_levels(picture, [0.5])
    np.testing.assert_array_equal(smoothed.pixels, picture.pixels)


def test_directory_with_a_broken_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, out = tmp_path / "photos", tmp_path / "made" / "out"
    save(photo("RGB"), photos / "a.png")
    save(photo("L"), photos / "below" / "b.JPG")
    save(photo("RGB"), photos / "c.ppm")
    save(photo("RGB"), photos / ".hidden" / "d.png")
    (photos / "notes.txt").write_text("no picture, and not called one")
    (photos / "broken.png").write_bytes((photos / "a.png").read_bytes()[:100])
    (photos / "text.png").write_text("no picture")
    assert smooth(photos, tmp_path / "missing.png", "-o", out) == 1
    written = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert written == ["a.png", "below/b.JPG", "c.ppm.png"]
    assert opened(out / "below" / "b.JPG").mode == "L"
    err = capsys.readouterr().err
    assert f"error: {photos / 'broken.png'}: broken picture" in err
    assert f"error: {photos / 'text.png'}: not a picture" in err
    assert f"error: {tmp_path / 'missing.png'}: no such file" in err
    assert "[6/6]" in err
    assert "about 0 s left" in err
    assert "3 of 6 pictures failed" in err


def test_results_inside_the_directory_are_not_inputs_of_the_next_run(tmp_path: Path) -> None:
    save(photo("RGB"), tmp_path / "a.png")
    for _ in range(2):
        assert smooth(tmp_path, "-o", tmp_path / "smoothed") == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.png", "a.png", "smoothed"]


def test_a_terminal_gets_a_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    save(photo("RGB"), tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no picture")
    assert smooth(tmp_path, "-o", tmp_path / "out") == 1
    err = capsys.readouterr().err
    assert "2/2" in err
    assert f"error: {tmp_path / 'b.png'}: not a picture" in err


def test_inputs_are_replaced_only_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save(photo("RGB"), tmp_path / "in.png")
    os.link(source, tmp_path / "link.png")
    for target in (source, tmp_path / "link.png", tmp_path):
        assert "--overwrite" in rejected(capsys, "smooth", source, "-o", target)
        assert_same(opened(source), photo("RGB"))
    assert "--overwrite" in rejected(capsys, "path", source, "-o", source)
    assert smooth(source, "--overwrite", "-o", source) == 0
    assert (np.asarray(opened(source)) != np.asarray(photo("RGB"))).any()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(photo("RGB"), tmp_path / "in.png")
    target = tmp_path / "out.png"
    target.write_bytes(b"old")

    def fail(self: Image.Image, file: object, **_: object) -> None:
        file.write(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", fail)
        assert smooth(source, "-o", target) == 1
    assert target.read_bytes() == b"old"
    assert "cannot write out.png (disk full)" in capsys.readouterr().err
    assert smooth(source, "-o", target) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.png", "out.png"]


def test_results_are_as_readable_as_any_new_file(tmp_path: Path) -> None:
    source = save(photo("RGB"), tmp_path / "in.png")
    assert smooth(source, "-o", tmp_path / "out.png") == 0
    assert (tmp_path / "out.png").stat().st_mode == source.stat().st_mode


def test_pictures_that_cannot_be_handled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failure(image: Image.Image, name: str, target: str) -> str:
        assert smooth(save(image, tmp_path / name), "-o", tmp_path / target) == 1
        return capsys.readouterr().err

    assert "JPEG cannot hold transparency" in failure(photo("RGBA"), "a.png", "out.jpg")
    assert "floating-point" in failure(photo("L").convert("F"), "f.tiff", "out.png")
    huge = Image.fromarray(np.full((HEIGHT, WIDTH), 1 << 20, np.int32))
    assert "beyond 16 bits" in failure(huge, "i.tiff", "out.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", HEIGHT * WIDTH // 3)
    assert "too large to be opened safely" in failure(photo("RGB"), "b.png", "out.png")
    assert not list(tmp_path.glob("out*"))


def test_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save(photo("RGB"), tmp_path / "in" / "a.png")
    other = save(photo("RGB"), tmp_path / "other" / "a.png")
    out = tmp_path / "out.png"
    (tmp_path / "empty").mkdir()
    for level in ("1.5", "nan", "much"):
        assert "from 0 (flat)" in rejected(capsys, "smooth", source, "--sparsity", level, "-o", out)
    assert "positive" in rejected(capsys, "smooth", source, "--max-side", 0, "-o", out)
    assert ".webp" in rejected(capsys, "smooth", source, "-o", tmp_path / "out.txt")
    assert "directory" in rejected(capsys, "smooth", source, other, "-o", out)
    assert "both" in rejected(capsys, "smooth", source, other, "-o", tmp_path / "out")
    assert "no pictures" in rejected(capsys, "smooth", tmp_path / "empty", "-o", tmp_path / "out")
    assert ".gif (an animation)" in rejected(capsys, "path", source, "-o", tmp_path / "out.txt")
    assert not out.exists()


def test_strip(tmp_path: Path) -> None:
    source = save(photo("RGB"), tmp_path / "in.png")
    assert main(["path", str(source), "-o", str(tmp_path / "strip.png")]) == 0
    strip = np.asarray(opened(tmp_path / "strip.png"))
    count, gap = 5, 4
    cell = (strip.shape[1] + gap) // count - gap
    assert cell >= WIDTH
    assert strip.shape[1] == count * cell + (count - 1) * gap
    left = (count - 1) * (cell + gap) + (cell - WIDTH) // 2
    np.testing.assert_array_equal(strip[:HEIGHT, left : left + WIDTH], np.asarray(photo("RGB")))
    captions = strip[HEIGHT:]
    for start in range(0, strip.shape[1], cell + gap):
        assert captions[:, start : start + cell].min() < 64
        assert (captions[:, start + cell : start + cell + gap] == 255).all()


def test_strip_of_grey_on_white_with_chosen_levels(tmp_path: Path) -> None:
    image = photo("LA")
    image.putalpha(0)
    source = save(image, tmp_path / "in.png")
    target = tmp_path / "strip.png"
    assert main(["path", str(source), "--levels", "0.25", "1", "-o", str(target)]) == 0
    strip = opened(target)
    assert strip.mode == "L"
    assert (np.asarray(strip)[:HEIGHT] == 255).all()


def test_animation(tmp_path: Path) -> None:
    source = save(photo("RGB"), tmp_path / "in.png")
    target = tmp_path / "animation.gif"
    assert main(["path", str(source), "-o", str(target)]) == 0
    with Image.open(target) as animation:
        assert animation.n_frames == 20 + 18
        assert animation.info["loop"] == 0
        frames = []
        for index in (0, 1, 19, 37):
            animation.seek(index)
            frames.append((np.asarray(animation.convert("RGB")), animation.info["duration"]))
    first, second, finest, last = frames
    assert [duration for _, duration in frames] == [800, 100, 800, 100]
    np.testing.assert_array_equal(second[0], last[0])
    assert (first[0] != second[0]).any()
    left = (finest[0].shape[1] - WIDTH) // 2
    np.testing.assert_array_equal(finest[0][:HEIGHT, left : left + WIDTH], np.asarray(photo("RGB")))


def test_path_of_a_file_that_is_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_text("no picture")
    assert main(["path", str(tmp_path / "a.png"), "-o", str(tmp_path / "strip.png")]) == 1
    assert "not a picture" in capsys.readouterr().err
    assert not (tmp_path / "strip.png").exists()


def test_programs_of_old_sizes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared = []
    monkeypatch.setattr(_pictures.jax, "clear_caches", lambda: cleared.append(True))
    monkeypatch.setattr(_pictures, "_compiled_shapes", set())
    for side in range(_pictures._SHAPES_KEPT):
        _pictures._forget_old_shapes((side, 1, 1))
        _pictures._forget_old_shapes((0, 1, 1))
    assert not cleared
    _pictures._forget_old_shapes((99, 1, 1))
    assert cleared


@pytest.mark.parametrize("missing", ["PIL", "tqdm"])
def test_missing_extras_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "isvs._pictures")
    monkeypatch.delattr(isvs, "_pictures")
    assert smooth(tmp_path / "a.png", "-o", tmp_path / "b.png") == 1
    err = capsys.readouterr().err
    assert missing in err
    assert "pip install 'isvs[cli]'" in err


def test_help_and_the_library_do_without_pillow() -> None:
    code = "import sys; sys.modules['PIL'] = sys.modules['tqdm'] = None; import runpy; runpy.run_module('isvs')"
    with contextlib.chdir(Path(isvs.__file__).parents[1]):
        shown = subprocess.run(
            [sys.executable, "-m", "isvs", "--help"], capture_output=True, text=True, check=True
        )
        subprocess.run([sys.executable, "-c", code], check=True)
    assert "smooth" in shown.stdout
    assert "path" in shown.stdout
