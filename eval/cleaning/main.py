"""`python -m eval.cleaning`: fit our constants and the peers' strengths, make the table, try other sizes."""

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from eval.cleaning import carry_over, fit, fit_auto, study
from eval.cleaning.options import AutoFitOptions, CarryOverOptions, FitOptions, TableOptions

Options = FitOptions | AutoFitOptions | TableOptions | CarryOverOptions
_COMMANDS = (
    Annotated[FitOptions, tyro.conf.subcommand("fit-peers")]
    | Annotated[AutoFitOptions, tyro.conf.subcommand("fit-auto")]
    | Annotated[TableOptions, tyro.conf.subcommand("table")]
    | Annotated[CarryOverOptions, tyro.conf.subcommand("carry-over")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; errors that the user can mend are one message, not a traceback."""
    given = None if arguments is None else list(arguments)
    options = tyro.cli(_COMMANDS, args=given, prog="python -m eval.cleaning")
    try:
        print(_run(options))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run(options: Options) -> object:
    match options:
        case AutoFitOptions():  # before the one that it extends
            return fit_auto.run(options)
        case FitOptions():
            return fit.run(options)
        case TableOptions():
            return study.run(options)
        case CarryOverOptions():
            return carry_over.run(options)
