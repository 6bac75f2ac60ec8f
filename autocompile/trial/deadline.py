"""A time limit for code that has no time limit itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TookTooLong(BaseException):
    """The time limit was reached. Not an Exception, so that `except Exception` in the limited code cannot catch it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the body after `seconds`, as soon as Python code runs again.

    This works only in the main thread of a system with interval timers. Elsewhere the body runs without a limit.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: Any) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
