"""Asks to stop: SIGTERM, which clusters send before they take a machine away."""

import signal
from types import FrameType, TracebackType

import jax


class StopSignal:
    """Notes SIGTERM, so that the loop can save and leave at the end of a step.

    Several processes must agree on the step; there JAX's own service, which notes the signal on
    any host, decides.
    """

    def __init__(self) -> None:
        self._asked = False
        self._alone = jax.process_count() == 1

    def __enter__(self) -> "StopSignal":
        if self._alone:
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._alone:
            signal.signal(signal.SIGTERM, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def asked(self, step: int) -> bool:
        """Whether to stop after this step; all processes get the same answer."""
        if self._alone:
            return self._asked
        from jax.experimental import multihost_utils

        return bool(multihost_utils.reached_preemption_sync_point(step))
