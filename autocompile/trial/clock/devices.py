"""How to time and measure each type of device: one table row per type."""

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
    """How to time and measure one type of device.

    `synchronize` waits until the device has finished all queued work. `queues`: whether work is queued ahead of the
    device. `matrix`: the size of a square matrix product that keeps the whole device busy. `copied_bytes`: more than
    any of today's caches holds, because a copy within a cache would measure another ceiling. `stamp` records, without
    waiting, when the device reaches this point. `elapsed_s` returns the seconds between two stamps after a
    synchronization.
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
