"""How long calls take where they may be given to a GPU, which does them later."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import torch

# So many may be under way before the oldest is waited for.
_MOST_PENDING = 256


def when_done() -> float:
    """`time.perf_counter`, when a GPU that is in use has done all that it was given."""
    if _uses_gpu():
        torch.cuda.synchronize()
    return time.perf_counter()


class Spans:
    """Seconds of spans of work, the first by itself; a GPU that is in use stamps them itself, and is not waited for.

    `count`: how many have ended.
    """

    def __init__(self) -> None:
        self.count, self.first_s = 0, 0.0
        self._seconds = 0.0
        self._pending: deque[tuple[Any, Any]] = deque()

    def begin(self) -> Any:
        """A stamp, for `end`."""
        return _stamp() if self.count and _uses_gpu() else time.perf_counter()

    def end(self, began: Any) -> None:
        """The span that began so has ended."""
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
        """Of those after the first; None if there are none. Waits for the device."""
        while self._pending:
            self._settle(waits=True)
        return self._seconds / (self.count - 1) if self.count > 1 else None

    def _settle(self, waits: bool) -> None:
        """Add up what is done, and the oldest in any case if that is to be waited for."""
        while self._pending and (waits or self._pending[0][1].query()):
            began, ended = self._pending.popleft()
            ended.synchronize()
            self._seconds += began.elapsed_time(ended) / 1e3
            waits = False


def _uses_gpu() -> bool:
    """Whether there is one in use; while somebody captures a CUDA graph, nothing may be asked of it."""
    return torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def _stamp() -> Any:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
