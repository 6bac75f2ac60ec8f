"""Ctrl-C, remembered until somebody has heard of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """Sees that no Ctrl-C is lost.

    Python drops a KeyboardInterrupt that comes while a destructor or a weak reference's callback runs. So the signal is
    also written down here, and `check` raises for it. Where the signal is handled by somebody else, or this is not the
    main thread, nothing is changed.
    """

    def __init__(self) -> None:
        self._came = self._installed = False

    def install(self) -> None:
        """Take over from Python's own handler."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._remember)
            self._installed = True

    def uninstall(self) -> None:
        """Give the signal back to Python's own handler, if nobody has taken it meanwhile."""
        in_main = threading.current_thread() is threading.main_thread()
        if self._installed and in_main and signal.getsignal(signal.SIGINT) == self._remember:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._installed = False

    def check(self) -> None:
        """Raises KeyboardInterrupt if there was one."""
        if self._came:
            raise KeyboardInterrupt

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt
