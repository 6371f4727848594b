"""Reports of evaluations: one page to read, one text for a pull request. Reads files only, and never imports JAX."""

import os
from collections.abc import Sequence
from pathlib import Path

from eval.report import markdown, page
from eval.report.read import ReportError, read_runs

__all__ = ["ReportError", "write"]


def write(folders: Sequence[Path], out: Path) -> tuple[Path, Path]:
    """Writes ``report.html`` and ``report.md`` about one or several evaluations, side by side.

    Everything is read and rendered before anything is written, and each file replaces an older one whole.

    Args:
      folders: each with `evaluation.json`, `results.jsonl` and, if there is one, `samples.npz`.
      out: where to write; made if it does not exist.

    Returns:
      The paths of the page and of the Markdown.

    Raises:
      ReportError: a file cannot be read; the message names it, and the line.
    """
    runs = read_runs([Path(folder) for folder in folders])
    out = Path(out)
    contents = {out / "report.html": page.render(runs), out / "report.md": markdown.render(runs)}
    out.mkdir(parents=True, exist_ok=True)
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in contents}
    try:
        for path, content in contents.items():
            parts[path].write_text(content, encoding="utf-8")
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    html, text = contents
    return html, text
