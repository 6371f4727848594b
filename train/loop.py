"""The host's side of training: steps, evaluation, checkpoints, and leaving in good order."""

import collections
import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from train import models, presets, run_folder
from train.checkpoint import Checkpoints
from train.config import Config
from train.data.sources import open_source
from train.evaluation import print_summary
from train.metrics import MetricsWriter
from train.progress import Progress
from train.setup import Parts, assemble
from train.sharding import Layout, start_processes
from train.state import TrainState
from train.step import Metrics
from train.stop import StopSignal

# Steps that the host may be ahead of the devices: enough to keep them busy.
_AHEAD = 2
_PROFILED_STEPS = range(5, 15)  # after those that compile
# Numbers that must be finite for training to go on.
_WATCHED = ("loss", "gradient_norm")


class NonFiniteError(FloatingPointError):
    """The loss or its gradient is no longer a number."""


def run(config: Config) -> dict[str, Any] | None:
    """Trains, or continues to train, until the end or until asked to stop.

    Args:
        config: as the user gave it.

    Returns:
        The summary of the finished run; None if it was asked to stop before.

    Raises:
        NonFiniteError: names the step; the last good checkpoint stays.
        ValueError: for options that contradict each other, the data or an earlier run.
    """
    config = presets.fill(config)
    folder = run_folder.choose(config)
    run_folder.check_config(folder, config)
    start_processes(config)
    layout = Layout()
    with run_folder.locked(folder) if layout.is_main else contextlib.nullcontext():
        summary = _run(config, folder, layout)
    if summary is not None and layout.is_main:
        print_summary(summary)
    return summary


def _run(config: Config, folder: Path, layout: Layout) -> dict[str, Any] | None:
    dataset = open_source(
        config.dataset,
        data_dir=config.data_dir,
        seed=config.seed,
        limit_train=config.limit_train,
        limit_test=config.limit_test,
        image_size=config.image_size,
    )
    if layout.is_main:
        run_folder.check_data(folder, dataset.fingerprint)
    summary = run_folder.read_summary(folder)
    if summary is not None:
        return summary
    parts = assemble(config, dataset, layout)
    if layout.is_main:
        # Only now: options that were refused before this must not hold the folder.
        run_folder.claim(folder, config, dataset.fingerprint)
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        return Trainer(config, folder, parts, checkpoints, layout).run(len(dataset.test))


class Trainer:
    """One run, from its latest checkpoint to its end.

    Args:
        config: filled by the recipe.
        folder: of the run.
        parts: what it works with.
        checkpoints: where it saves.
        layout: where arrays live.
    """

    def __init__(
        self, config: Config, folder: Path, parts: Parts, checkpoints: Checkpoints, layout: Layout
    ) -> None:
        self._config, self._folder, self._parts = config, folder, parts
        self._checkpoints, self._layout = checkpoints, layout
        self._epoch_steps = parts.feed.steps_per_epoch
        self._save_every = config.checkpoint_every or self._epoch_steps
        self._pending: collections.deque[tuple[int, Metrics]] = collections.deque()
        self._rows: list[dict[str, float]] = []  # of steps since the last line written
        self._clock = time.monotonic()

    def run(self, test_images: int) -> dict[str, Any] | None:
        """Trains to the end; None if asked to stop before it. Raises KeyboardInterrupt after Ctrl-C."""
        state = self._checkpoints.restore(self._parts.initial)
        if state is None:
            state = self._parts.initial
        first = int(state.step)
        self._writer = MetricsWriter(self._folder, first) if self._layout.is_main else None
        try:
            with StopSignal() as stop, self._open_progress(first) as progress:
                self._progress = progress
                state, stopped = self._train(state, first, stop)
            self._checkpoints.wait()
            if stopped and stop.interrupted:
                raise KeyboardInterrupt  # now that all is saved
            if stopped:
                where = f"step {int(state.step)} of {self._parts.total_steps}"
                progress.say(f"stopped at {where}; the same command continues")
                return None
            return self._finish(state, test_images)
        finally:
            if self._writer is not None:
                self._writer.close()

    def _open_progress(self, first: int) -> Progress:
        batch = self._config.batch_size or 1
        return Progress(
            "training",
            self._parts.total_steps * batch,
            unit="images",
            done=first * batch,
            silent=not self._layout.is_main,
        )

    def _train(self, state: TrainState, first: int, stop: StopSignal) -> tuple[TrainState, bool]:
        """All steps that are left; True if asked to stop."""
        feed, update, total = self._parts.feed, self._parts.update, self._parts.total_steps
        with contextlib.closing(feed.train_batches(first)) as batches:  # type: ignore[type-var]
            for step in range(first, total):
                with self._profiled(step - first):
                    state, metrics = update(state, feed.train, next(batches))
                self._note(step, metrics)
                done = step + 1
                if done % self._epoch_steps == 0:
                    self._end_epoch(done, state)
                leave = stop.asked(done)
                if leave or done == total or done % self._save_every == 0:
                    # Only states whose loss was looked at are worth keeping.
                    self._settle(keep=0)
                    self._write_rows(done)
                    self._checkpoints.save(done, state)
                if leave and done < total:
                    return state, True
        return state, False

    def _end_epoch(self, done: int, state: TrainState) -> None:
        epoch = done // self._epoch_steps
        self._settle(keep=0)
        self._write_rows(done)
        if epoch % (self._config.eval_every or 1) and done < self._parts.total_steps:
            return
        accuracy = self._parts.evaluator.clean(state.weights)
        self._write(done, accuracy, prefix="test")
        self._checkpoints.save_best(done, state.weights, max(accuracy.values()))
        self._progress.say(
            f"epoch {epoch}/{self._config.epochs}: test accuracy {100 * accuracy['raw']:.2f} % raw, "
            f"{100 * accuracy['smoothed']:.2f} % smoothed"
        )

    def _note(self, step: int, metrics: Metrics) -> None:
        """Keeps a step's numbers, and looks at those that are a few steps old."""
        self._pending.append((step, metrics))
        self._settle(keep=_AHEAD)
        if len(self._rows) >= self._config.log_every:
            self._write_rows(step + 1 - len(self._pending))

    def _settle(self, keep: int) -> None:
        """Fetches the numbers of all steps but the last few, and stops the run if they are bad."""
        while len(self._pending) > keep:
            step, metrics = self._pending.popleft()
            row = {name: float(value) for name, value in metrics.items()}
            for name in _WATCHED:
                if not math.isfinite(row[name]):
                    self._fail(step, name, row[name])
            self._rows.append(row)
            self._progress.advance(self._config.batch_size or 1, note=f"loss {row['loss']:.3f}")

    def _fail(self, step: int, name: str, value: float) -> None:
        self._checkpoints.wait()
        steps = self._checkpoints.steps
        kept = f"the checkpoint of step {steps[-1]} is kept" if steps else "no checkpoint was made"
        raise NonFiniteError(
            f"{name.replace('_', ' ')} is {value} at step {step}; {kept} in {self._folder}. "
            "Try a lower --learning-rate or a bound by --clip-norm."
        )

    def _write_rows(self, step: int) -> None:
        """One line: the mean over the steps since the line before."""
        if not self._rows:
            return
        names = self._rows[0]
        means = {name: sum(row[name] for row in self._rows) / len(self._rows) for name in names}
        now = time.monotonic()
        images = len(self._rows) * (self._config.batch_size or 1)
        means["images_per_second"] = images / max(now - self._clock, 1e-9)
        self._clock, self._rows = now, []
        self._write(step, means, prefix="train")

    def _write(self, step: int, values: dict[str, float], *, prefix: str) -> None:
        if self._writer is not None:
            self._writer.write(step, values, prefix=prefix)

    @contextlib.contextmanager
    def _profiled(self, number: int) -> Iterator[None]:
        """Traces some steps, counted from the start of this process, if asked to."""
        wanted = self._config.profile and self._layout.is_main
        if wanted and number == _PROFILED_STEPS.start:
            jax.profiler.start_trace(str(self._folder / "profile"))
        yield
        if wanted and number == _PROFILED_STEPS.stop - 1:
            self._settle(keep=0)
            jax.profiler.stop_trace()

    def _finish(self, state: TrainState, test_images: int) -> dict[str, Any]:
        """Writes the weights, the closing table and, last, that the run is finished."""
        config, evaluator = self._config, self._parts.evaluator
        summary = {
            "dataset": config.dataset,
            "model": config.model,
            "method": config.method,
            "steps": int(state.step),
            "test_images": test_images,
            "clean": evaluator.clean(state.weights),
            "noisy": evaluator.noisy(state.weights),
            "noise": config.noise,
            "folder": str(self._folder),
        }
        best = self._checkpoints.restore_best(state.weights)
        if self._layout.is_main:
            self._save_weights(state.weights, run_folder.WEIGHTS)
            self._save_weights(best or state.weights, run_folder.BEST_WEIGHTS)
            run_folder.write_summary(self._folder, summary)
        return summary

    def _save_weights(self, weights: tuple[nnx.State, nnx.State], name: str) -> None:
        models.save(nnx.merge(self._parts.graph, *weights), self._folder / name)
