"""What all programs of the project do alike: messages in place of tracebacks, and the exit status."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

DEBUG = "--debug"
DEBUG_HELP = "show the traceback of an error"

FAILED, USAGE, INTERNAL, INTERRUPTED, READER_GONE = 1, 2, 70, 130, 141

_OURS = ("isvs", "train", "eval")


class UsageError(ValueError):
    """A command line that cannot be followed; nothing was begun."""


class NotInstalledError(ImportError):
    """A package that only this choice needs; the text says which, and how to get it."""


# What a user can mend. The third is for numbers that are no longer finite.
_EXPECTED = (ValueError, OSError, FloatingPointError, NotInstalledError)


def run(
    body: Callable[[list[str]], int | None],
    arguments: Sequence[str] | None,
    *,
    program: str,
    install: str,
    interrupted: str = "interrupted",
) -> int:
    """Runs a program, and tells in a line what went wrong.

    Args:
        body: the program: takes the words of the command line but `--debug`, returns the exit status or None for 0.
        arguments: the words; None for those that the process was started with.
        program: how it is called, for messages.
        install: the command that installs what it needs.
        interrupted: what to say after Ctrl-C.

    Returns:
        The exit status: see docs/command_line.md.

    Raises:
        SystemExit: from a parser, after `--help` or for wrong options.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return body([word for word in given if word != DEBUG]) or 0
        finally:
            sys.stdout.flush()  # here, where a reader that is gone can be told from a failure
    except (Exception, KeyboardInterrupt) as error:
        if DEBUG in given:
            traceback.print_exc()
        if isinstance(error, BrokenPipeError):
            _forget_output()
            return READER_GONE
        if isinstance(error, KeyboardInterrupt):
            status, text = INTERRUPTED, interrupted
        elif isinstance(error, ModuleNotFoundError) and not _is_ours(error.name):
            missing = f"{program} needs {error.name}, which is not installed"
            status, text = FAILED, f"error: {missing}: {install}"
        else:
            status, text = _explained(error)
        print(text, file=sys.stderr)
        return status


def _explained(error: Exception) -> tuple[int, str]:
    """Exit status and message."""
    if isinstance(error, UsageError):
        return USAGE, f"error: {error}"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return FAILED, f"error: {error.filename}: {error.strerror}"
    if isinstance(error, _EXPECTED):
        return FAILED, f"error: {error}"
    first = (str(error).strip() or "no message").splitlines()[0]
    if isinstance(error, MemoryError) or first.startswith("RESOURCE_EXHAUSTED"):
        return FAILED, f"error: out of memory; smaller batches or pictures need less ({first})"
    kind = type(error).__name__
    return INTERNAL, f"internal error: {kind}: {first}; run again with {DEBUG} for the traceback"


def _is_ours(module: str | None) -> bool:
    return module is None or module.partition(".")[0] in _OURS


def _forget_output() -> None:
    """Sends what is still to be printed nowhere; else the interpreter complains when it ends."""
    with contextlib.suppress(OSError, ValueError):  # a stream that is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
