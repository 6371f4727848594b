"""Accuracy on the test set, and the table that closes a run."""

import sys
from typing import Any

import jax

from train.feed import Feed
from train.step import Evaluate


class Evaluator:
    """Counts right answers over the test set.

    Args:
        evaluate: the jitted evaluation of a batch.
        feed: the test set.
        rows: its length.
        noise: standard deviation of the noise of `summary`.
        key: of that noise.
    """

    def __init__(
        self, evaluate: Evaluate, feed: Feed, *, rows: int, noise: float, key: jax.Array
    ) -> None:
        self._evaluate, self._feed, self._rows = evaluate, feed, rows
        self._noise, self._key = noise, key

    def clean(self, weights: Any) -> dict[str, float]:
        """Accuracy of the test images as they are, and smoothed."""
        return {
            "raw": self._accuracy(weights, smoothed=False, noise=0.0),
            "smoothed": self._accuracy(weights, smoothed=True, noise=0.0),
        }

    def noisy(self, weights: Any) -> dict[str, float]:
        """The same after Gaussian noise."""
        return {
            "raw": self._accuracy(weights, smoothed=False, noise=self._noise),
            "smoothed": self._accuracy(weights, smoothed=True, noise=self._noise),
        }

    def _accuracy(self, weights: Any, *, smoothed: bool, noise: float) -> float:
        counts = [
            self._evaluate(
                weights, self._feed.test, batch, self._key, smoothed=smoothed, noise=noise
            )
            for batch in self._feed.test_batches()
        ]
        return sum(map(int, counts)) / self._rows


def print_summary(summary: dict[str, Any]) -> None:
    """The closing table, on standard output."""
    clean, noisy = summary["clean"], summary["noisy"]
    noise = f"gaussian noise {summary['noise']:g}"
    width = max(len(noise), 10)
    lines = [
        f"{summary['dataset']}, {summary['model']}, {summary['method']}: "
        f"accuracy on {summary['test_images']} test images, in per cent",
        f"{'':{width}}  {'raw':>8}  {'smoothed':>8}",
        f"{'clean':{width}}  {100 * clean['raw']:8.2f}  {100 * clean['smoothed']:8.2f}",
        f"{noise:{width}}  {100 * noisy['raw']:8.2f}  {100 * noisy['smoothed']:8.2f}",
        f"{summary['folder']}: weights.safetensors, metrics.jsonl, config.json",
    ]
    print("\n".join(lines), file=sys.stdout, flush=True)
