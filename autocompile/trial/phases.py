"""The phases of a child process, announced to the parent process as they begin and timed in seconds."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from autocompile.core.protocol import EVENTS_VARIABLE


class Phases:
    """Seconds by phase. Phases do not nest.

    The child announces each phase through the file descriptor that the parent passed. The parent can then end a
    compile at its own limit, and sleep while a child is timing.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.current = "start"
        self._ends = math.inf

    def limit(self, total_s: float) -> None:
        """Note that the parent will kill this process in `total_s` seconds from now."""
        self._ends = time.perf_counter() + total_s

    @property
    def left_s(self) -> float:
        """Seconds until the parent kills this process."""
        return self._ends - time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.current = name
        announce({"phase": name})
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started


def announce(event: dict[str, object]) -> None:
    """Send an event to the parent, if there is one. A line is short enough for a pipe to write it atomically."""
    descriptor = os.environ.get(EVENTS_VARIABLE)
    if descriptor:
        os.write(int(descriptor), msgspec.json.encode(event) + b"\n")
