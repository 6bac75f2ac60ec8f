"""Measure how long calls take that may run asynchronously on a GPU."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import torch

# Without CUDA in torch, no call need ask for a GPU.
_MAY_USE_GPU = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
# At most this many spans are pending before the oldest one is awaited.
_MOST_PENDING = 256


def when_done() -> float:
    """Return `time.perf_counter()` after a GPU that is in use has finished all its work."""
    if _uses_gpu():
        torch.cuda.synchronize()
    return time.perf_counter()


class Spans:
    """Durations of spans of work, with the first one kept apart.

    A GPU that is in use records the timestamps itself, so the process does not wait for it. `count` is the number of
    spans that have ended.
    """

    def __init__(self) -> None:
        self.count, self.first_s = 0, 0.0
        self._seconds = 0.0
        self._pending: deque[tuple[Any, Any]] = deque()

    def begin(self) -> Any:
        """Return a timestamp to pass to `end`."""
        return _stamp() if _MAY_USE_GPU and self.count and _uses_gpu() else time.perf_counter()

    def end(self, began: Any) -> None:
        """Record the end of the span that began at this timestamp."""
        self.count += 1
        if not isinstance(began, float):
            self._pending.append((began, _stamp()))
            self._settle(len(self._pending) > _MOST_PENDING)
        elif self.count == 1:
            self.first_s = time.perf_counter() - began
        else:
            self._seconds += time.perf_counter() - began

    @property
    def mean_s(self) -> float | None:
        """Return the mean of the spans after the first, or None if there are none. Waits for the device."""
        while self._pending:
            self._settle(waits=True)
        return self._seconds / (self.count - 1) if self.count > 1 else None

    def _settle(self, waits: bool) -> None:
        """Add up the spans that are finished, after waiting for the oldest one if `waits`."""
        while self._pending and (waits or self._pending[0][1].query()):
            began, ended = self._pending.popleft()
            ended.synchronize()
            self._seconds += began.elapsed_time(ended) / 1e3
            waits = False


def _uses_gpu() -> bool:
    """Return whether a GPU is in use and may be queried: not while a CUDA graph is captured."""
    return torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def _stamp() -> Any:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
