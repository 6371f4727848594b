"""`python -m train.main`: command line -> Config -> loop.run."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isvs import _command

if TYPE_CHECKING:  # the extra may be missing: what needs it is imported where it is used
    from train.config import Config

_PROGRAM = "python -m train.main"
_EXAMPLES = """
python -m train.main
python -m train.main --dataset cifar10 --data-dir DIR --method fix --sparsity 0.6 --out runs/a
python -m train.main --config runs/a/config.json --seed 1 --out runs/b
"""


def parse(arguments: Sequence[str]) -> "Config":
    """The configuration of a command line.

    Args:
        arguments: options; `--config FILE` gives the values of those that are not named.

    Raises:
        ValueError: for a file with values that are out of range or contradict each other.
        SystemExit: for unknown options and wrong values, with the choices; and after --help.
    """
    from train import command_line
    from train.config import Config

    first = argparse.ArgumentParser(_PROGRAM, add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    known, rest = first.parse_known_args(list(arguments))
    default = Config()
    if known.config is not None:
        default = Config.from_json(known.config.read_text(encoding="utf-8"), str(known.config))
    config: Config = command_line.read(
        Config, rest, program=_PROGRAM, examples=_EXAMPLES, default=default
    )
    return config


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; errors that the user can mend are one message, not a traceback."""
    return _command.run(
        _train,
        arguments,
        program=_PROGRAM,
        install="pip install -e '.[train]'",
        interrupted="interrupted; the same command continues",
    )


def _train(arguments: Sequence[str]) -> None:
    from train import loop, presets

    try:
        config = presets.fill(parse(arguments))
    except ValueError as error:
        raise _command.UsageError(str(error)) from error
    loop.run(config)


if __name__ == "__main__":
    sys.exit(main())
