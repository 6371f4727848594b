"""`python -m eval.cleaning`: fit our constants and the peers' strengths, make the table, try other sizes."""

from collections.abc import Sequence

from isvs import _command

_PROGRAM = "python -m eval.cleaning"
_EXAMPLES = """
python -m eval.cleaning carry-over
python -m eval.cleaning fit-auto --weights FILE.safetensors --model resnet20 --data-dir DIR
python -m eval.cleaning fit-peers --weights FILE.safetensors --model resnet20 --data-dir DIR
python -m eval.cleaning table --weights FILE.safetensors --model resnet56 --data-dir DIR --out runs/cleaning
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; errors that the user can mend are one message, not a traceback."""
    return _command.run(
        _clean,
        arguments,
        program=_PROGRAM,
        install="pip install -e '.[eval]'",
        interrupted="interrupted; the command `table` continues what it began, others begin again",
    )


def _clean(arguments: Sequence[str]) -> None:
    from eval.cleaning.commands import COMMANDS, run
    from train import command_line

    print(run(command_line.read(COMMANDS, arguments, program=_PROGRAM, examples=_EXAMPLES)))
