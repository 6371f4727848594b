"""`python -m isvs`: smooths picture files, and draws how a picture changes with the level."""

import argparse
import functools
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

import isvs
from isvs import _command

if TYPE_CHECKING:  # Pillow may be missing: what needs it is imported where it is used.
    from isvs._pictures import Picture

_DESCRIPTION = """\
Smooth pictures to their large-scale structure.

A level (sparsity) is the fraction of neighbouring pixels that may differ:
0 is one flat colour, 1 is the picture itself, 0.6 keeps shapes and drops texture."""

_NOTES = """\
PNG, JPEG, WebP, BMP, TIFF and GIF are read and written (by the ending), and more are read.
Grey stays grey, 16-bit grey stays 16-bit in PNG and TIFF; palettes and CMYK become RGB.
Transparency is copied; the colours of fully transparent pixels are left as they are and have
no influence on the others. Pictures are turned upright by their EXIF orientation; colour
profiles are kept, other metadata is not. Of animations and multi-page files, the first frame
is taken. JPEG is written at quality 95, WebP without loss.

On two CPU cores a picture takes about 5 seconds per million pixels, and the first of each size
some seconds more. The exit status is 0 if all went well, 1 if a picture failed (the others are
done all the same), 2 for wrong arguments."""

_SMOOTH_EXAMPLES = """\
examples:
  python -m isvs smooth photo.jpg -o smooth.png
  python -m isvs smooth noisy.jpg --sparsity auto -o clean.png
  python -m isvs smooth holiday/ more/*.png --sparsity 0.5 --max-side 1000 -o smoothed/"""

_PATH_EXAMPLES = """\
examples:
  python -m isvs path photo.jpg -o strip.png
  python -m isvs path photo.jpg --max-side 400 -o animation.gif"""

_PROGRAM = "python -m isvs"
_AUTO = "auto"
_STRIP_LEVELS = (0.2, 0.4, 0.6, 0.8, 1.0)
_ANIMATION_LEVELS = tuple(step / 20 for step in range(1, 21))

_LARGE = 2_000_000  # pixels: what takes so long that one wants to know in advance
_SECONDS_PER_PIXEL = 5e-6  # on two CPU cores


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; wrong arguments raise `SystemExit(2)` as argparse does."""
    given = sys.argv[1:] if argv is None else argv
    run = functools.partial(_run, debug=_command.DEBUG in given)
    return _command.run(run, given, program=_PROGRAM, install="pip install 'isvs[cli]'")


def _run(arguments: Sequence[str], debug: bool) -> int:
    parser, commands = _parsers()
    args = parser.parse_args(arguments)
    args.debug = debug
    # Both are in the extra: to be missed before anything is done.
    import tqdm  # noqa: F401

    from isvs import _pictures  # noqa: F401

    try:
        status: int = args.run(args)
    except _command.UsageError as error:
        commands[args.command].error(str(error))
    return status


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    layout: Any = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    examples = f"{_SMOOTH_EXAMPLES}\n{_PATH_EXAMPLES.partition(chr(10))[2]}"
    parser = argparse.ArgumentParser(
        _PROGRAM, description=_DESCRIPTION, epilog=f"{_NOTES}\n\n{examples}", **layout
    )
    parser.add_argument("--version", action="version", version=f"isvs {isvs.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    smooth = commands.add_parser(
        "smooth", help="smooth pictures", epilog=_SMOOTH_EXAMPLES, **layout
    )
    smooth.description = "Smooth pictures: one to a file, or many to a directory."
    smooth.add_argument(
        "photos",
        metavar="PHOTO",
        nargs="+",
        help="a picture, or a directory: all pictures in it and below it",
    )
    smooth.add_argument(
        "--sparsity",
        type=_level_or_auto,
        default=0.6,
        metavar="S",
        help="the level, from 0 (flat) to 1 (the picture itself), default %(default)s; or auto: remove noise, as much "
        "as there is, in pictures of any size; spots too, unless pixels are fully transparent",
    )
    smooth.add_argument(
        "-o",
        "--out",
        required=True,
        help="the file to write; for several pictures or a directory of them, a directory, in which they keep "
        "their names and sub-directories (formats that are only read get .png added)",
    )
    smooth.set_defaults(run=_smooth)

    path = commands.add_parser(
        "path", help="draw a picture at several levels", epilog=_PATH_EXAMPLES, **layout
    )
    path.description = "Draw a picture at several levels: side by side, or as an animated GIF."
    path.add_argument("photo", metavar="PHOTO", type=Path)
    path.add_argument(
        "--levels",
        type=_level,
        nargs="+",
        metavar="S",
        help="the levels to draw; default 0.2 0.4 0.6 0.8 1.0, for a GIF 0.05 to 1.0 in steps of 0.05",
    )
    path.add_argument(
        "-o",
        "--out",
        required=True,
        type=Path,
        help="a .gif is an animation, any other ending a strip",
    )
    path.set_defaults(run=_path)

    for command in (parser, smooth, path):
        # Taken out of the words before they come here.
        command.add_argument(_command.DEBUG, action="store_true", help=_command.DEBUG_HELP)
    for command in (smooth, path):
        command.add_argument(
            "--max-side",
            type=_side,
            metavar="N",
            help="first scale pictures down so that the longer side has at most N pixels",
        )
        command.add_argument(
            "--overwrite",
            action="store_true",
            help="allow an input to be replaced (other existing files are replaced anyway)",
        )
    return parser, {"smooth": smooth, "path": path}


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = -1.0
    if not 0 <= level <= 1:
        raise argparse.ArgumentTypeError(
            f"must be a number from 0 (flat) to 1 (the original), got {text!r}"
        )
    return level


def _level_or_auto(text: str) -> float | str:
    return text if text == _AUTO else _level(text)


def _side(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a positive whole number of pixels, got {text!r}")
    return int(text)


def _smooth(args: argparse.Namespace) -> int:
    from isvs._pictures import PictureError, at_levels, cleaned, read_picture, write_picture

    targets = _plan(args.photos, args.out)
    _refuse_inputs(targets.values(), targets, args.overwrite)
    failures = 0
    with _Progress(len(targets), "picture") as progress:
        for source, target in targets.items():
            try:
                picture = read_picture(source, args.max_side)
                progress.announce(source, picture)
                if args.sparsity == _AUTO:
                    smoothed = cleaned(picture)
                else:
                    (smoothed,) = at_levels(picture, [args.sparsity])
                write_picture(smoothed, target)
            except PictureError as error:
                failures += 1
                progress.fail(source, error, args.debug)
            progress.advance(str(source))
    if failures and len(targets) > 1:
        print(f"{failures} of {len(targets)} pictures failed", file=sys.stderr)
    return 1 if failures else 0


def _path(args: argparse.Namespace) -> int:
    from isvs._pictures import (
        FORMATS,
        PictureError,
        at_levels,
        read_picture,
        write_animation,
        write_strip,
    )

    ending = args.out.suffix.lower()
    if ending not in FORMATS:
        strips = ", ".join(known for known in FORMATS if known != ".gif")
        raise _command.UsageError(
            f"-o must end in .gif (an animation) or {strips} (a strip), got {args.out}"
        )
    _refuse_inputs([args.out], [args.photo], args.overwrite)
    animated = ending == ".gif"
    levels = args.levels or (_ANIMATION_LEVELS if animated else _STRIP_LEVELS)
    captions = [str(level) for level in levels]
    with _Progress(len(levels), "level") as progress:
        try:
            picture = read_picture(args.photo, args.max_side)
            progress.announce(args.photo, picture)
            steps = progress.through(at_levels(picture, levels), captions)
            (write_animation if animated else write_strip)(steps, captions, args.out)
        except PictureError as error:
            progress.fail(args.photo, error, args.debug)
            return 1
    return 0


def _plan(photos: Sequence[str], out: str) -> dict[Path, Path]:
    """Where each picture goes: sources to targets."""
    from isvs._pictures import FORMATS

    target = Path(out)
    names: dict[Path, Path] = {}  # the name of each picture in OUT
    for photo in map(Path, photos):
        found = _pictures_below(photo, target) if photo.is_dir() else [photo]
        for source in found:
            names.setdefault(source, source.relative_to(photo if photo.is_dir() else photo.parent))
    if not names:
        raise _command.UsageError(f"no pictures in {', '.join(photos)}")
    several = len(photos) > 1 or Path(photos[0]).is_dir()
    slash = out.endswith(("/", os.sep))
    known = target.suffix.lower() in FORMATS
    if not several and not target.is_dir() and not slash:
        if not known:
            raise _command.UsageError(
                f"-o must end in {', '.join(FORMATS)}, or in / for a directory, got {out}"
            )
        return dict.fromkeys(names, target)
    if not target.is_dir() and (target.exists() or (known and not slash)):
        raise _command.UsageError(f"several pictures need a directory for -o, got {out}")
    sources: dict[Path, Path] = {}
    for source, name in names.items():
        place = target / name
        if name.suffix.lower() not in FORMATS:
            place = place.with_name(f"{name.name}.png")
        if place in sources:
            raise _command.UsageError(
                f"{sources[place]} and {source} would both be written to {place}"
            )
        sources[place] = source
    return {source: place for place, source in sources.items()}


def _pictures_below(directory: Path, out: Path) -> list[Path]:
    """All pictures in a directory and below it, by their endings, without hidden files and earlier results in `out`."""
    from isvs._pictures import ENDINGS

    results = out.resolve()
    inside = results.is_relative_to(directory.resolve()) and results != directory.resolve()
    return sorted(
        path
        for path in directory.rglob("*")
        if path.suffix.lower() in ENDINGS
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(directory).parts)
        and not (inside and path.resolve().is_relative_to(results))
    )


def _refuse_inputs(targets: Iterable[Path], sources: Iterable[Path], overwrite: bool) -> None:
    """Fails if a target is one of the sources, under whatever name."""
    inputs = {_identity(source) for source in sources if source.exists()}
    for target in targets:
        if not overwrite and target.exists() and _identity(target) in inputs:
            raise _command.UsageError(f"{target} is an input; to replace it, add --overwrite")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


class _Progress:
    """Reports on stderr: a bar if that is a terminal, else lines; a single step gets neither."""

    def __init__(self, total: int, unit: str) -> None:
        from tqdm import tqdm

        self._total, self._done, self._start = total, 0, time.monotonic()
        shown = total > 1 and sys.stderr.isatty()
        self._bar = tqdm(total=total, unit=unit) if shown else None

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def say(self, text: str) -> None:
        """Writes a line, above the bar if there is one."""
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.write(text, file=sys.stderr)

    def fail(self, source: Path, error: Exception, debug: bool) -> None:
        """Tells of a picture that failed, with the traceback if wanted."""
        if debug:
            self.say("".join(traceback.format_exception(error)).rstrip())
        self.say(f"error: {source}: {error}")

    def announce(self, source: Path, picture: "Picture") -> None:
        """Warns of a picture that will take long."""
        height, width, _ = picture.pixels.shape
        if height * width >= _LARGE and jax.default_backend() == "cpu":
            seconds = height * width * _SECONDS_PER_PIXEL
            self.say(f"{source}: {width} x {height} pixels, about {seconds:.0f} s on two CPU cores")

    def advance(self, name: str) -> None:
        """Counts a step."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()
        elif self._total > 1:
            each = (time.monotonic() - self._start) / self._done
            left = each * (self._total - self._done)
            self.say(f"[{self._done}/{self._total}] {name}, about {left:.0f} s left")

    def through(self, steps: Iterable["Picture"], names: Sequence[str]) -> Iterator["Picture"]:
        """Passes the steps on and counts them."""
        for step, name in zip(steps, names, strict=True):
            self.advance(f"level {name}")
            yield step


if __name__ == "__main__":
    sys.exit(main())
