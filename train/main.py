"""`python -m train.main`: command line -> Config -> loop.run."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from train.config import Config


def parse(arguments: Sequence[str]) -> Config:
    """The configuration of a command line.

    Args:
        arguments: options; `--config FILE` gives the values of those that are not named.

    Raises:
        ValueError: for values that are out of range or contradict each other.
        SystemExit: for unknown options, with the choices; and after --help.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    known, rest = first.parse_known_args(list(arguments))
    default = Config()
    if known.config is not None:
        default = Config.from_json(known.config.read_text(encoding="utf-8"), str(known.config))
    return tyro.cli(Config, args=rest, default=default, prog="python -m train.main")


def main() -> int:
    """Runs the program; errors that the user can mend are one message, not a traceback."""
    from train import loop

    try:
        loop.run(parse(sys.argv[1:]))
    except (ValueError, OSError, loop.NonFiniteError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
