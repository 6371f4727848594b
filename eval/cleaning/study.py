"""`table`: every preprocessing on every column, chunk by chunk, continued where an earlier run stopped."""

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from eval.bench_denoisers import psnr
from eval.cleaning import chunks, columns, table, throughput
from eval.cleaning.chunks import Chunk, ChunkFile, Counts
from eval.cleaning.network import Network, in_memory
from eval.cleaning.options import NAMES, TableOptions
from eval.cleaning.peers import Pool
from eval.cleaning.preprocessings import Preprocessing, one_ahead, preprocessings
from train import run_folder
from train.progress import Progress


def run(options: TableOptions) -> str:
    """Measures what is missing unless told not to, and writes the table of what is there.

    Returns:
        The table, as text.

    Raises:
        ValueError: if there is nothing to show, or the folder holds lines that are not ours.
    """
    known = preprocessings(options.strengths)
    chosen: dict[str, Preprocessing] = {
        name: known[name] for name in NAMES if name in options.preprocess
    }
    network = Network(options, options.limit)
    weights = network.subject.weights_digest
    test = in_memory(network.subject.dataset.test, options.dataset)
    plan = chunks.plan(test, options.chunk)
    if options.print_only:  # without the lock: a run may be at work
        shown, file = chosen, ChunkFile.snapshot(options.out, weights)
    else:
        with run_folder.locked(options.out):
            file = ChunkFile(options.out, weights)
            measure(network, plan, chosen, file)
            # Rows that an earlier command measured are shown too, and timed together with the others.
            shown = {n: how for n, how in known.items() if _begun(file, plan, n, how)}
            sizes = options.timed_images, options.timed_peer_images
            throughput.write(options.out, throughput.measure(shown, test, *sizes))
    rates, timing = throughput.read(options.out, shown)
    definitions = {name: how.definition for name, how in shown.items()}
    images, rows = table.in_common(file, definitions, plan, rates)
    about = {
        "network": f"{options.model} ({options.weights.name})",
        "images": f"{images} of {len(test)} test images of {options.dataset}",
        "weights_digest": weights,
        "timing": timing,
        "definitions": {row.name: definitions[row.name] for row in rows},
    }
    return table.write(options.out, rows, about)


def _begun(file: ChunkFile, plan: Sequence[Chunk], name: str, how: Preprocessing) -> bool:
    return any(file.read(name, how.definition, chunk) is not None for chunk in plan)


def measure(
    network: Network,
    plan: Sequence[Chunk],
    chosen: Mapping[str, Preprocessing],
    file: ChunkFile,
) -> None:
    """Fills the file; all rows of a chunk are done before the next chunk is begun."""
    missing = [
        {n: how for n, how in chosen.items() if file.read(n, how.definition, chunk) is None}
        for chunk in plan
    ]
    passes = len(columns.BENCHMARK)
    total = passes * len(chosen) * sum(len(chunk.split) for chunk in plan)
    left = passes * sum(len(todo) * len(c.split) for c, todo in zip(plan, missing, strict=True))
    with Pool() as pool, Progress("table", total, unit="images", done=total - left) as progress:
        for chunk, todo in zip(plan, missing, strict=True):
            for name, counts in _measure_chunk(network, chunk, todo, pool, progress):
                file.write(name, todo[name].definition, chunk, counts)


def _measure_chunk(
    network: Network,
    chunk: Chunk,
    todo: Mapping[str, Preprocessing],
    pool: Pool,
    progress: Progress,
) -> Iterator[tuple[str, Counts]]:
    """Corrupts once for all rows; a row comes out when its columns are done."""
    if not todo:
        return
    noisy = columns.benchmark(network.place(chunk.split.images), chunk.rows)
    clean = np.asarray(noisy[columns.CLEAN])
    work = [(name, column) for name in todo for column in noisy]
    cleaned = one_ahead(
        functools.partial(todo[name].start, pool, noisy[column]) for name, column in work
    )
    right: dict[str, int] = {}
    decibels: dict[str, float] = {}
    for (name, column), images in zip(work, cleaned, strict=True):
        right[column] = network.right_answers(images, chunk.split.labels)
        decibels[column] = psnr(np.asarray(images), clean) * len(clean)
        progress.advance(len(clean), f"{name}, {column}")
        if len(right) == len(noisy):
            yield name, Counts(right, decibels)
            right, decibels = {}, {}
