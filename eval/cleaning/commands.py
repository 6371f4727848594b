"""The commands of `python -m eval.cleaning`, each with its options."""

from typing import Annotated

import tyro

from eval.cleaning import carry_over, fit, fit_auto, study
from eval.cleaning.options import AutoFitOptions, CarryOverOptions, FitOptions, TableOptions

Options = FitOptions | AutoFitOptions | TableOptions | CarryOverOptions
COMMANDS = (
    Annotated[FitOptions, tyro.conf.subcommand("fit-peers")]
    | Annotated[AutoFitOptions, tyro.conf.subcommand("fit-auto")]
    | Annotated[TableOptions, tyro.conf.subcommand("table")]
    | Annotated[CarryOverOptions, tyro.conf.subcommand("carry-over")]
)


def run(options: Options) -> object:
    """Runs the command that the options are for, and returns what it prints."""
    match options:
        case AutoFitOptions():  # before the one that it extends
            return fit_auto.run(options)
        case FitOptions():
            return fit.run(options)
        case TableOptions():
            return study.run(options)
        case CarryOverOptions():
            return carry_over.run(options)
