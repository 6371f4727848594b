"""`python -m eval.main`: evaluate a network, put reports together, draw figures."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from isvs import _command

# What needs the extra is imported where it is used: it may be missing.
_PROGRAM = "python -m eval.main"
_EXAMPLES = """
python -m eval.main --run runs/a
python -m eval.main --run runs/a --suite adversarial --budget standard
python -m eval.main --weights FILE.safetensors --model resnet56 --dataset cifar10 --data-dir DIR --limit 1000 --out out
python -m eval.main report runs/a/eval runs/b/eval --out page
python -m eval.main figure path photo.png
"""
_REPORT_EXAMPLES = """
python -m eval.main report runs/a/eval
python -m eval.main report runs/a/eval runs/b/eval --out page
"""


def run_evaluation(arguments: Sequence[str]) -> None:
    """Runs the suites, then writes samples and report."""
    from eval import runner
    from eval.options import Options
    from eval.subject import open_subject
    from train import command_line

    given = command_line.read(Options, arguments, program=_PROGRAM, examples=_EXAMPLES)
    options = given.filled()
    folder = runner.choose_folder(options)
    subject = open_subject(options)
    runner.evaluate(subject, options, folder, list(arguments))
    from eval.samples import write_samples

    write_samples(subject, options, folder)
    _write_report((folder,), folder)


def run_report(arguments: Sequence[str]) -> None:
    """Writes a page over evaluations that were made before."""
    from eval.report.options import ReportOptions
    from train import command_line

    options = command_line.read(
        ReportOptions, arguments, program=f"{_PROGRAM} report", examples=_REPORT_EXAMPLES
    )
    if not options.folders:
        raise _command.UsageError("report: expected folders of evaluations, got none")
    alone = options.folders[0] if len(options.folders) == 1 else Path("report")
    _write_report(options.folders, options.out or alone)


def run_figure(arguments: Sequence[str]) -> None:
    """Draws one figure."""
    from eval.figures import FIGURES
    from train import command_line

    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        lines = [f"  {name:12}{figure.help}" for name, figure in FIGURES.items()]
        print(f"usage: {_PROGRAM} figure NAME [--help]\n\n" + "\n".join(lines))
        examples = [f"{_PROGRAM} figure {figure.example}" for figure in FIGURES.values()]
        print(command_line.closing("\n".join(examples)))
        return
    if name not in FIGURES:
        raise _command.UsageError(f"figure: unknown {name!r}; choose one of {', '.join(FIGURES)}")
    figure = FIGURES[name]
    options = command_line.read(
        figure.Options,
        rest,
        program=f"{_PROGRAM} figure {name}",
        examples=f"{_PROGRAM} figure {figure.example}",
    )
    print(figure.run(options))


def _write_report(folders: Sequence[Path], out: Path) -> None:
    from eval import report

    page, text = report.write(folders, out)
    print(f"{page}\n{text}")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"report": run_report, "figure": run_figure}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; errors that the user can mend are one message, not a traceback."""
    return _command.run(
        _dispatch,
        arguments,
        program=_PROGRAM,
        install="pip install -e '.[eval]'",
        interrupted="interrupted; the same command continues",
    )


def _dispatch(arguments: Sequence[str]) -> None:
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        run_evaluation(arguments)
    else:
        command(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
