"""Benchmarks: ``python -m eval.bench NAME [--out FILE.json] [--quick]``.

Each prints one table of ours against its peers and writes the same as JSON. A target that is missed is printed as
missed; it does not change the exit status.
"""

import argparse
import importlib
import pathlib
import sys
import time
from collections.abc import Sequence

from isvs import _command

# The modules, imported when they are asked for. Each has `run`, which takes whether to be quick and returns the rows.
BENCHMARKS = {
    "smoothing": "eval.bench_smoothing",
    "training": "eval.bench_training",
    "corruptions": "eval.bench_corruptions",
    "attacks": "eval.bench_attacks",
    "methods": "eval.bench_methods",
}
_PROGRAM = "python -m eval.bench"
_DESCRIPTION = """\
Time parts of the project beside what one would otherwise use.

Prints one table, and writes the same as JSON. A target that is missed is printed as missed;
it does not change the exit status."""
_EXAMPLES = """\
examples:
  python -m eval.bench smoothing
  python -m eval.bench training --out training.json
  python -m eval.bench corruptions --quick"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; errors that the user can mend are one message, not a traceback."""
    return _command.run(_bench, arguments, program=_PROGRAM, install="pip install -e '.[eval]'")


def _bench(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        _PROGRAM,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benchmark", choices=sorted(BENCHMARKS))
    parser.add_argument(
        "--out", type=pathlib.Path, help="where the JSON goes (default: runs/bench/BENCHMARK.json)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is"
    )
    # Taken out of the words before they come here.
    parser.add_argument(_command.DEBUG, action="store_true", help=_command.DEBUG_HELP)
    _measure(parser.parse_args(arguments))


def _measure(options: argparse.Namespace) -> None:
    from eval import bench_table

    out = options.out or pathlib.Path("runs") / "bench" / f"{options.benchmark}.json"
    machine, start = bench_table.machine(), time.perf_counter()
    rows = importlib.import_module(BENCHMARKS[options.benchmark]).run(options.quick)
    content = {
        "benchmark": options.benchmark,
        "quick": options.quick,
        "seconds": time.perf_counter() - start,
        "machine": machine,
        "rows": [row.to_json() for row in rows],
    }
    bench_table.write_json(out, content)
    described = f"{machine['cpu']}, {machine['cores']} cores, jax {machine['jax']}"
    print(
        f"{options.benchmark}{' (quick: too small to judge by)' if options.quick else ''} on {described}\n"
    )
    print(bench_table.format_table(rows))
    print(f"wrote {out} after {content['seconds']:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
