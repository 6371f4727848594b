"""Asks to stop: SIGTERM, which clusters send before they take a machine away, and Ctrl-C."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType

import jax

_Handler = Callable[[int, FrameType | None], object] | int | None


class StopSignal:
    """Notes SIGTERM and Ctrl-C, so that the loop can save and leave at the end of a step.

    A second Ctrl-C interrupts at once. Several processes must agree on the step; there JAX's own
    service, which notes SIGTERM on any host, decides, and Ctrl-C interrupts at once.

    Attributes:
        interrupted: whether it was Ctrl-C.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._asked = False
        self._alone = jax.process_count() == 1
        self._before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> "StopSignal":
        if self._alone:
            for number in (signal.SIGTERM, signal.SIGINT):
                # A shell makes what it runs in the background deaf to Ctrl-C, which is for others.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if number == signal.SIGINT:
            self.interrupted = True
            signal.signal(number, self._before[signal.SIGINT])

    def asked(self, step: int) -> bool:
        """Whether to stop after this step; all processes get the same answer."""
        if self._alone:
            return self._asked
        from jax.experimental import multihost_utils

        return bool(multihost_utils.reached_preemption_sync_point(step))
