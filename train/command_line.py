"""Command lines read into dataclasses: by tyro, with examples in the help and errors of a line or two."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import tyro

from isvs._command import DEBUG, DEBUG_HELP, USAGE

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def read(
    options: Any,
    arguments: Sequence[str],
    *,
    program: str,
    examples: str,
    default: Any = tyro.MISSING,
) -> Any:
    """The options of a command line.

    Args:
        options: a dataclass, or a union of them for commands.
        arguments: the words.
        program: how it is called.
        examples: commands, a line each, for the end of the help.
        default: an instance with the values of options that are not given.

    Raises:
        SystemExit: after `--help`, with 0; for wrong options, with 2.
    """
    errors, colourless = io.StringIO(), io.StringIO()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stderr(errors))
            if os.environ.get("NO_COLOR"):  # tyro asks only whether standard output is a terminal
                stack.enter_context(contextlib.redirect_stdout(colourless))
            extra = {} if default is tyro.MISSING else {"default": default}
            return tyro.cli(options, args=list(arguments), prog=program, **extra)
    except SystemExit as leaving:
        if leaving.code == USAGE:
            print(f"error: {_unboxed(errors.getvalue())}", file=sys.stderr)
            print(f"{program} --help lists the options", file=sys.stderr)
        else:
            print(colourless.getvalue() + errors.getvalue(), end="")
        if leaving.code == 0:
            print(closing(examples))
        raise


def closing(examples: str) -> str:
    """The end of the help."""
    lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    return f"\n{DEBUG} beside any of these: {DEBUG_HELP}.\n\nexamples:\n{lines}"


def _unboxed(text: str) -> str:
    """The message in one of tyro's boxes, as a line: what is wrong, then what it could be."""
    # The title, then lines behind a border or, where standard output is not UTF-8, behind blanks.
    _, *lines = _ESCAPE.sub("", text).strip("\n").splitlines() or [""]
    parts: list[list[str]] = [[]]
    for line in lines:
        if line and not line.strip("│╰╯─- "):
            parts.append([])
        else:
            parts[-1].append(line[2:].rstrip("│ "))
    said = [_told(part) for part in parts]
    wanted = [part for part in said if not part.startswith(("For full help", "Argument help"))]
    message = ". ".join(part.rstrip(".") for part in wanted if part)
    # The name of the dataclass says nothing to a user.
    return re.sub(r"^Error parsing [A-Z]\w*: ", "", message) or text.strip()


def _told(lines: Sequence[str]) -> str:
    """A part of a box without its details: the text down to an empty line, of lists the names alone."""
    words: list[str] = []
    for line in lines:
        if not line.strip():
            break
        if line.startswith(" " * 8):
            continue  # the help of an option
        another = line.startswith(" " * 4 + "-") and words and words[-1][-1:] not in ":,"
        words.append(("; " if another else " ") + line.strip())
    return "".join(words).strip()
