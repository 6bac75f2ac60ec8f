"""SIGTERM stops a run as Ctrl-C does. Batch systems and container engines send it before they kill a process."""

from __future__ import annotations

import signal
from types import FrameType

from autocompile.interrupts import interrupt

# The exit status of a process that a signal ended is this number plus the signal's.
_SIGNALLED = 128


class Stopping:
    """Treats SIGTERM as Ctrl-C, so that the run ends with the best result so far."""

    def __init__(self) -> None:
        self._received = signal.SIGINT

    def install(self) -> None:
        """Handle SIGTERM from now on, unless the caller of this process has it ignored."""
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._stop)

    @property
    def status(self) -> int:
        """The exit status of a stopped run: 130 after Ctrl-C, 143 after SIGTERM."""
        return _SIGNALLED + self._received

    def _stop(self, _number: int, frame: FrameType | None) -> None:
        self._received = signal.SIGTERM
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:
            interrupt()
