"""Pictures for the command line: read, smoothed, drawn, written. Needs Pillow, which the rest of `isvs` does not."""

import contextlib
import dataclasses
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError

from isvs.automatic import AutoLevel, settle
from isvs.noise import noise_level
from isvs.scale_space import LEVELS, ScaleSpace, encode
from isvs.smoothing import smooth

# What can be written, by the ending of the file.
FORMATS = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".gif": "GIF",
}
# What counts as a picture in a directory; a file that is named is tried whatever its ending.
ENDINGS = frozenset(FORMATS) | {".avif", ".jfif", ".jp2", ".pbm", ".pgm", ".pnm", ".ppm", ".tga"}

# Regions are flat with sharp borders: codecs that blur colour or ring would undo that.
_OPTIONS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95, "subsampling": 0},
    "WEBP": {"lossless": True, "exact": True},
    "TIFF": {"compression": "tiff_deflate"},
}
_WITHOUT_ALPHA = ("JPEG", "BMP")
_WITH_16_BIT = ("PNG", "TIFF")

# Compiled programs are kept for this many shapes of pictures; those of one shape take some 20 MB.
_SHAPES_KEPT = 16
_compiled_shapes: set[tuple[int, ...]] = set()
_at = jax.jit(ScaleSpace.at)
_clean = jax.jit(smooth, static_argnums=1)
_settle = jax.jit(settle, static_argnums=2)


class PictureError(Exception):
    """A file that cannot be read or written as a picture; the text says why."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A decoded picture.

    Attributes:
      pixels: uint8 or uint16 ``[H, W, C]``, one channel (grey) or three (RGB).
      alpha: uint8 ``[H, W]``, or None for an opaque picture.
      icc_profile: what the numbers mean as colours, if the file said so.
    """

    pixels: np.ndarray
    alpha: np.ndarray | None = None
    icc_profile: bytes | None = None


def read_picture(path: Path, max_side: int | None = None) -> Picture:
    """Decodes the first frame of a picture, upright, as grey or RGB.

    Args:
      path: the file.
      max_side: larger pictures are scaled down until the longer side has this many pixels.

    Raises:
      PictureError: the file is missing, no picture, broken or too large.
    """
    try:
        with warnings.catch_warnings():
            # Remarks on odd metadata; and pictures up to twice Pillow's bound are large, not bombs.
            warnings.simplefilter("ignore")
            with Image.open(path) as file:
                return _decode(ImageOps.exif_transpose(file), max_side)
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError("not a picture in any known format") from None
    except Image.DecompressionBombError as error:
        raise PictureError(f"too large to be opened safely ({error})") from None
    except MemoryError:
        raise PictureError("too large for this machine's memory") from None
    except Exception as error:  # Decoders fail on broken data in every way there is.
        if isinstance(error, OSError) and error.strerror:
            raise PictureError(error.strerror.lower()) from None
        raise PictureError(f"broken picture ({error})") from error


def _decode(image: Image.Image, max_side: int | None) -> Picture:
    profile = image.info.get("icc_profile")
    if image.mode == "I" or image.mode.startswith("I;16"):
        return Picture(_decode_16_bit(image, max_side), icc_profile=profile)
    if image.mode == "F":
        raise PictureError("holds floating-point pixels, whose range is unknown; convert it first")
    grey = image.mode in ("1", "L", "LA", "La")
    if image.mode not in ("L", "LA", "P", "PA", "RGB", "RGBA"):
        profile = None  # It describes the colours before conversion, such as those of CMYK.
    mode = ("L" if grey else "RGB") + ("A" if image.has_transparency_data else "")
    image = _scaled_down(image if image.mode == mode else image.convert(mode), max_side)
    channels = np.asarray(image).reshape(image.height, image.width, -1)
    if mode.endswith("A"):
        return Picture(channels[..., :-1], channels[..., -1], profile)
    return Picture(channels, icc_profile=profile)


def _decode_16_bit(image: Image.Image, max_side: int | None) -> np.ndarray:
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65535:
        raise PictureError(
            "holds integers beyond 16 bits, whose range is unknown; convert it first"
        )
    # Pillow resamples floats in every version, 16-bit integers only in some.
    scaled = np.asarray(_scaled_down(Image.fromarray(values.astype(np.float32)), max_side))
    return np.rint(scaled.clip(0, 65535)).astype(np.uint16)[..., None]


def _scaled_down(image: Image.Image, max_side: int | None) -> Image.Image:
    longest = max(image.size)
    if max_side is None or longest <= max_side:
        return image
    width, height = (max(1, round(side * max_side / longest)) for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def at_levels(picture: Picture, levels: Iterable[float]) -> Iterator[Picture]:
    """The picture at each level; it is encoded once.

    Fully transparent pixels keep their colour and have no part in that of others: they are tied to nothing, and levels
    count the edges between other pixels.

    Raises:
      PictureError: there is not enough memory.
    """
    images, hidden = _floats(picture)
    if hidden.any():
        images[hidden] = 0 if hidden.all() else images[~hidden].mean(axis=0)
    with _memory_errors():
        space = encode(images)
        if hidden.any():
            down, right = np.asarray(space.down), np.asarray(space.right)
            down, right, levels = _without_hidden(down, right, levels, hidden)
            space = ScaleSpace(space.images, jnp.asarray(down), jnp.asarray(right))
        for level in levels:
            yield _redrawn(picture, _at(space, level), hidden)


def cleaned(picture: Picture) -> Picture:
    """The picture without the noise that it seems to have; see `isvs.AutoLevel`, here for an eye and so without limit.

    Fully transparent pixels keep their colour and have no part in that of others. Where there are any, the speckle rule
    is left out: what stands alone among them is no speckle.

    Raises:
      PictureError: there is not enough memory.
    """
    images, hidden = _floats(picture)
    policy = AutoLevel(limit=math.inf)
    with _memory_errors():
        if not hidden.any():
            return _redrawn(picture, _clean(images, policy), hidden)
        sigma = noise_level(np.where(hidden[..., None], np.float32(np.nan), images))
        images[hidden] = -1  # farther from every colour than noise can be, and so never tied to one
        return _redrawn(picture, _settle(images, sigma, policy), hidden)


def _floats(picture: Picture) -> tuple[np.ndarray, np.ndarray]:
    """Pixels in [0, 1], float32 ``[H, W, C]``, and which are fully transparent, bool ``[H, W]``."""
    _forget_old_shapes(picture.pixels.shape)
    images = (picture.pixels / np.iinfo(picture.pixels.dtype).max).astype(np.float32)
    hidden = np.zeros(images.shape[:2], bool) if picture.alpha is None else picture.alpha == 0
    return images, hidden


def _redrawn(picture: Picture, images: jax.Array, hidden: np.ndarray) -> Picture:
    """The picture with other colours, but where it is hidden."""
    white = np.iinfo(picture.pixels.dtype).max
    pixels = np.rint(np.asarray(images, np.float64) * white)
    pixels = pixels.clip(0, white).astype(picture.pixels.dtype)
    pixels[hidden] = picture.pixels[hidden]
    return dataclasses.replace(picture, pixels=pixels)


def _without_hidden(
    down: np.ndarray, right: np.ndarray, levels: Iterable[float], hidden: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Entry levels with the edges of hidden pixels cut, and the levels that hold the same share of the edges left."""
    down_cut = hidden[:-1] | hidden[1:]
    right_cut = hidden[:, :-1] | hidden[:, 1:]
    left = np.concatenate([down[~down_cut], right[~right_cut]])
    entered = np.bincount(left, minlength=LEVELS + 1).cumsum()  # by each level
    return (
        np.where(down_cut, np.uint8(0), down),
        np.where(right_cut, np.uint8(0), right),
        [float(np.searchsorted(entered, level * left.size)) / LEVELS for level in levels],
    )


def _forget_old_shapes(shape: tuple[int, ...]) -> None:
    """Keeps a directory of pictures that all differ in size from filling the memory with programs."""
    if shape not in _compiled_shapes and len(_compiled_shapes) >= _SHAPES_KEPT:
        jax.clear_caches()
        _compiled_shapes.clear()
    _compiled_shapes.add(shape)


@contextlib.contextmanager
def _memory_errors() -> Iterator[None]:
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            raise PictureError("too large for the memory; try --max-side") from error
        raise


def write_picture(picture: Picture, path: Path) -> None:
    """Writes a picture in the format of the path's ending, whole or not at all.

    Formats without 16-bit grey get 8 bits; GIF gets at most 256 colours.

    Raises:
      PictureError: the format cannot hold the picture, or the file cannot be written.
    """
    kind = FORMATS[path.suffix.lower()]
    if picture.alpha is not None and kind in _WITHOUT_ALPHA:
        raise PictureError(f"{kind} cannot hold transparency; choose .png, .webp or .tiff")
    pixels = picture.pixels if kind in _WITH_16_BIT else _as_8_bit(picture.pixels)
    if picture.alpha is not None:
        pixels = np.concatenate([pixels, picture.alpha[..., None]], axis=-1)
    image = _as_image(pixels)
    options = dict(_OPTIONS.get(kind, {}))
    # WebP stores grey as RGB, where a profile for grey would be wrong.
    if picture.icc_profile and not (kind == "WEBP" and picture.pixels.shape[-1] == 1):
        options["icc_profile"] = picture.icc_profile
    _write_whole(path, lambda file: image.save(file, format=kind, **options))


def _write_whole(path: Path, save: Callable[[IO[bytes]], None]) -> None:
    """Writes beside the target and renames, so that a reader sees the old file or the new one, never a part."""
    path = path.resolve()  # A link stays a link: what it points to is replaced.
    unfinished = path.with_name(f".isvs-{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            save(file)
        unfinished.replace(path)
    except (
        Exception
    ) as error:  # Encoders differ in what they raise for a picture beyond their limits.
        reason = getattr(error, "strerror", None) or str(error)
        raise PictureError(f"cannot write {path.name} ({reason})") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_strip(pictures: Iterable[Picture], captions: Sequence[str], path: Path) -> None:
    """Writes pictures of one size and colour profile side by side, each over its caption."""
    pictures = list(pictures)
    cells = list(_captioned(pictures, captions))
    gap = max(4, cells[0].shape[1] // 50)
    spaced = [np.pad(cell, ((0, 0), (0, gap), (0, 0)), constant_values=255) for cell in cells]
    strip = np.concatenate(spaced, axis=1)[:, :-gap]
    write_picture(Picture(strip, icc_profile=pictures[0].icc_profile), path)


def write_animation(pictures: Iterable[Picture], captions: Sequence[str], path: Path) -> None:
    """Writes a GIF that runs through the pictures and back, for ever, and rests at both ends."""
    # No dither: it would put back the small scales that are gone.
    frames = [
        _as_image(cell).quantize(256, dither=Image.Dither.NONE)
        for cell in _captioned(pictures, captions)
    ]
    durations = [100] * len(frames)  # milliseconds
    durations[0] = durations[-1] = 800
    frames += frames[-2:0:-1]
    durations += durations[-2:0:-1]
    options = {"save_all": True, "append_images": frames[1:], "duration": durations, "loop": 0}
    _write_whole(path, lambda file: frames[0].save(file, format="GIF", **options))


def _captioned(pictures: Iterable[Picture], captions: Sequence[str]) -> Iterator[np.ndarray]:
    """Each picture over white with its caption below: uint8 ``[H + line, max(W, longest caption), C]``."""
    for picture, caption in zip(pictures, captions, strict=True):
        pixels = _over_white(picture)
        height, width, channels = pixels.shape
        font = ImageFont.load_default(min(max(12, width // 12), 64))
        boxes = [font.getbbox(text) for text in captions]
        text_width, text_height = (math.ceil(max(box[side] for box in boxes)) for side in (2, 3))
        margin = 2 + text_height // 4
        size = (max(width, text_width + 2 * margin), height + text_height + 2 * margin)
        canvas = Image.new("L" if channels == 1 else "RGB", size, "white")
        ImageDraw.Draw(canvas).text(
            (canvas.width / 2, height + margin), caption, fill="black", font=font, anchor="ma"
        )
        cell = np.array(canvas).reshape(canvas.height, canvas.width, channels)
        left = (canvas.width - width) // 2
        cell[:height, left : left + width] = pixels
        yield cell


def _over_white(picture: Picture) -> np.ndarray:
    pixels = _as_8_bit(picture.pixels)
    if picture.alpha is None:
        return pixels
    opacity = picture.alpha[..., None] / 255
    return np.rint(pixels * opacity + 255 * (1 - opacity)).astype(np.uint8)


def _as_8_bit(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _as_image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
