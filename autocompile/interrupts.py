"""Ctrl-C: none is lost, and none interrupts code that must not be left in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
        if _in_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._remember)
            self._installed = True

    def uninstall(self) -> None:
        """Restore Python's default handler, unless other code has replaced this one meanwhile."""
        if self._installed and _in_main_thread() and signal.getsignal(signal.SIGINT) == self._remember:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._installed = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a Ctrl-C was received."""
        if self._came:
            raise KeyboardInterrupt

    def _remember(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        interrupt()


class _Postponement:
    """How many blocks of the main thread postpone an interrupt now, and whether one came meanwhile."""

    def __init__(self) -> None:
        self.blocks = 0
        self.came = False


_postponement = _Postponement()


def interrupt() -> None:
    """Raise KeyboardInterrupt, from a signal handler. Within `uninterrupted`, only the second call raises it."""
    was_postponed, _postponement.came = _postponement.came, bool(_postponement.blocks)
    if was_postponed or not _postponement.blocks:
        raise KeyboardInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Postpone the KeyboardInterrupt of `interrupt` to the end of the block.

    A database's driver that is interrupted in the middle of a statement prints tracebacks, and may leave its connection
    unusable. Outside the main thread this does nothing, as signals do not arrive there.
    """
    if not _in_main_thread():
        yield
        return
    _postponement.blocks += 1
    try:
        yield
    finally:
        _postponement.blocks -= 1
        if _postponement.came and not _postponement.blocks:
            _postponement.came = False
            raise KeyboardInterrupt


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
