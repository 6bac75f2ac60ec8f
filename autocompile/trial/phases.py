"""What a child is doing, told to the parent while it happens and counted in seconds."""

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
    """Seconds by phase; phases do not nest.

    Entering one is told to the parent through the file descriptor that it passed, so that the parent
    can end a compile at its own limit, and can stay asleep while a child is timing.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.current = "start"
        self._ends = math.inf

    def limit(self, total_s: float) -> None:
        """The parent will kill this process in so many seconds from now."""
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
    """Tell the parent, if there is one; a line is short enough for a pipe to keep it whole."""
    descriptor = os.environ.get(EVENTS_VARIABLE)
    if descriptor:
        os.write(int(descriptor), msgspec.json.encode(event) + b"\n")
