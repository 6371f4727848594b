"""The options of `python -m eval.main report`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Make one page over one or many evaluations.

    Attributes:
        folders: of evaluations, each with a results.jsonl.
        out: where report.html and report.md go; by default the folder, or report/ for several.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    out: Path | None = None
