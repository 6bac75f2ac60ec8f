"""What a type of device needs to be timed and measured: one row for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


def _between(start: float, end: float) -> float:
    return end - start


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _between_events(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / 1e3


@dataclass(frozen=True)
class Device:
    """`synchronize` waits until it has done all that it was given; `queues` says whether it is given work ahead.

    `matrix` is the size of a square matrix product that keeps all of it busy. `copied_bytes` are more than any cache of
    today holds, as a copy within a cache is another ceiling. `stamp` tells when the device gets there, without waiting
    for it, and `elapsed_s` the seconds between two of these, when it has been waited for.
    """

    synchronize: Callable[[], None]
    matrix: int
    copied_bytes: int
    queues: bool = False
    stamp: Callable[[], Any] = time.perf_counter
    elapsed_s: Callable[[Any, Any], float] = _between


DEVICES = {
    "cpu": Device(lambda: None, matrix=1024, copied_bytes=128 << 20),
    "cuda": Device(
        torch.cuda.synchronize,
        matrix=4096,
        copied_bytes=512 << 20,
        queues=True,
        stamp=_event,
        elapsed_s=_between_events,
    ),
}
