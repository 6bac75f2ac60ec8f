"""Remember a Ctrl-C until the program has reacted to it."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """A signal handler that makes sure no Ctrl-C is lost.

    Python drops a KeyboardInterrupt that is raised while a destructor or a weak reference's callback runs. This class
    also records the signal, and `check` raises KeyboardInterrupt for it. If other code handles the signal already, or
    this is not the main thread, nothing is changed.
    """

    def __init__(self) -> None:
        self._came = self._installed = False

    def install(self) -> None:
        """Replace Python's default handler."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._remember)
            self._installed = True

    def uninstall(self) -> None:
        """Restore Python's default handler, unless other code has replaced this one meanwhile."""
        in_main = threading.current_thread() is threading.main_thread()
        if self._installed and in_main and signal.getsignal(signal.SIGINT) == self._remember:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._installed = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a Ctrl-C was received."""
        if self._came:
            raise KeyboardInterrupt

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt
