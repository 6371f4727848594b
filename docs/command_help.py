"""The directive `command-help`: what a command prints for ``--help``, asked when the site is built."""

import contextlib
import importlib
import io
import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# The programs, and the function of each that reads a command line.
ENTRIES = {
    "isvs": "isvs.__main__:main",
    "train.main": "train.main:parse",
    "eval.main": "eval.main:main",
    "eval.bench": "eval.bench:main",
    "eval.cleaning": "eval.cleaning.main:main",
}
_PLAIN = {"COLUMNS": "100", "NO_COLOR": "1"}


def help_of(command: str) -> str:
    """What ``python -m COMMAND --help`` prints, for a program and perhaps its command."""
    program, *words = command.split()
    if program not in ENTRIES:
        raise ValueError(f"unknown program {program!r}; known are {', '.join(ENTRIES)}")
    module, _, function = ENTRIES[program].partition(":")
    entry: Callable[[Sequence[str]], Any] = getattr(importlib.import_module(module), function)
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, _PLAIN),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        entry([*words, "--help"])
    if not printed.getvalue():
        raise ValueError(f"python -m {command} --help printed nothing")
    return printed.getvalue()


class CommandHelp(SphinxDirective):
    """A block with the help of the command that is the directive's argument."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The block."""
        block = nodes.literal_block(text=help_of(self.arguments[0]), language="text")
        return [block]


def setup(app: Sphinx) -> dict[str, Any]:
    """Makes the directive known."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
