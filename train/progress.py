"""How far a long task is: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts units of work, and tells the rate and the time left.

    Args:
        label: what is being done.
        total: units in all.
        unit: what is counted.
        done: units that were done before, which do not count for the rate.
        silent: say nothing, on processes that are not the main one.
    """

    def __init__(
        self, label: str, total: int, *, unit: str, done: int = 0, silent: bool = False
    ) -> None:
        self._label, self._total, self._unit, self._silent = label, total, unit, silent
        self._first = self._done = done
        self._began = self._last_line = time.monotonic()
        self._note = ""
        self._bar = None
        if not silent and sys.stderr.isatty():
            self._bar = tqdm(
                total=total, initial=done, desc=label, unit=f" {unit}", dynamic_ncols=True
            )

    def advance(self, count: int, note: str = "") -> None:
        """Adds finished units; the note is shown behind them."""
        self._done += count
        self._note = note or self._note
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(count)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._line()

    def say(self, text: str) -> None:
        """A line of its own, which does not disturb the bar."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        elif not self._silent:
            print(text, file=sys.stderr, flush=True)

    def _line(self) -> None:
        if self._silent:
            return
        self._last_line = time.monotonic()
        seconds = max(self._last_line - self._began, 1e-9)
        rate = (self._done - self._first) / seconds
        left = _clock((self._total - self._done) / rate) if rate else "?"
        note = f", {self._note}" if self._note else ""
        print(
            f"{self._label}: {self._done}/{self._total} {self._unit}, {rate:.1f}/s, {left} left{note}",
            file=sys.stderr,
            flush=True,
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None and self._done > self._first:
            self._line()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
