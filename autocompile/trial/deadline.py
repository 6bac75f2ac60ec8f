"""A limit for work that asks nobody how long it may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TookTooLong(BaseException):
    """The limit is over. No Exception, so that the work's own handlers do not take it for a fault of their own."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the work after so many seconds, where Python runs next.

    Only the main thread of a system with interval timers can be limited so; elsewhere it takes as long as it takes.
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
