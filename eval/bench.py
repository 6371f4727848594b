"""Benchmarks: ``python -m eval.bench NAME [--out FILE.json] [--quick]``.

Each prints one table of ours against its peers and writes the same as JSON. A target that is missed is printed as
missed; it does not change the exit status.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

from eval import (
    bench_attacks,
    bench_corruptions,
    bench_methods,
    bench_smoothing,
    bench_table,
    bench_training,
)

# A benchmark takes whether to be quick, and returns its rows.
BENCHMARKS: dict[str, Callable[[bool], list[bench_table.Row]]] = {
    "smoothing": bench_smoothing.run,
    "training": bench_training.run,
    "corruptions": bench_corruptions.run,
    "attacks": bench_attacks.run,
    "methods": bench_methods.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m eval.bench", description=__doc__)
    parser.add_argument("benchmark", choices=sorted(BENCHMARKS))
    parser.add_argument(
        "--out", type=pathlib.Path, help="where the JSON goes (default: runs/bench/BENCHMARK.json)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is"
    )
    options = parser.parse_args(arguments)
    out = options.out or pathlib.Path("runs") / "bench" / f"{options.benchmark}.json"

    machine, start = bench_table.machine(), time.perf_counter()
    rows = BENCHMARKS[options.benchmark](options.quick)
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
