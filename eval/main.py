"""`python -m eval.main`: evaluate a network, put reports together, draw figures."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro

_PROGRAM = "python -m eval.main"


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Make one page over one or many evaluations.

    Attributes:
        folders: of evaluations, each with a results.jsonl.
        out: where report.html and report.md go; by default the folder, or report/ for several.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    out: Path | None = None


def run_evaluation(arguments: Sequence[str]) -> None:
    """Runs the suites, then writes samples and report."""
    from eval import runner
    from eval.options import Options
    from eval.subject import open_subject

    options = tyro.cli(Options, args=list(arguments), prog=_PROGRAM).filled()
    folder = runner.choose_folder(options)
    subject = open_subject(options)
    runner.evaluate(subject, options, folder, list(arguments))
    from eval.samples import write_samples

    write_samples(subject, options, folder)
    _write_report((folder,), folder)


def run_report(arguments: Sequence[str]) -> None:
    """Writes a page over evaluations that were made before."""
    options = tyro.cli(ReportOptions, args=list(arguments), prog=f"{_PROGRAM} report")
    if not options.folders:
        raise ValueError("report: expected folders of evaluations, got none")
    alone = options.folders[0] if len(options.folders) == 1 else Path("report")
    _write_report(options.folders, options.out or alone)


def run_figure(arguments: Sequence[str]) -> None:
    """Draws one figure."""
    from eval.figures import FIGURES

    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        lines = [f"  {name:12}{figure.help}" for name, figure in FIGURES.items()]
        print(f"usage: {_PROGRAM} figure NAME [--help]\n\n" + "\n".join(lines))
        return
    if name not in FIGURES:
        raise ValueError(f"figure: unknown {name!r}; choose one of {', '.join(FIGURES)}")
    figure = FIGURES[name]
    options = tyro.cli(figure.Options, args=rest, prog=f"{_PROGRAM} figure {name}")
    print(figure.run(options))


def _write_report(folders: Sequence[Path], out: Path) -> None:
    from eval import report

    page, text = report.write(folders, out)
    print(f"{page}\n{text}")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"report": run_report, "figure": run_figure}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; errors that the user can mend are one message, not a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = COMMANDS.get(given[0]) if given else None
    try:
        if command is None:
            run_evaluation(given)
        else:
            command(given[1:])
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
