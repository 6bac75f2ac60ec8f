"""Time and memory by submodule."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from autocompile.core.profile import Submodule
from autocompile.trial.submodules import following
from autocompile.trial.timing import CLOCKS
from autocompile.workload.samples import Sample, clone

_MOST = 20


class _Stopwatch:
    """Seconds by path, each without what runs beneath it."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._synchronize = synchronize
        self._running: list[str] = []
        self._since = 0.0

    def enter(self, path: str) -> None:
        """A submodule begins, and the one above it pauses."""
        self._book()
        self._running.append(path)
        self.calls[path] += 1

    def leave(self) -> None:
        """It ends, and the one above it goes on."""
        self._book()
        self._running.pop()

    def _book(self) -> None:
        self._synchronize()
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = time.perf_counter()


def hottest(model: Any, sample: Sample, device: str, calls: int, allocated: Mapping[str, int]) -> tuple[Submodule, ...]:
    """The up to 20 submodules that take most of a call by themselves, the most first; a function has none.

    On a GPU the device is waited for around each of them, which takes away what overlaps.
    """
    if not isinstance(model, nn.Module):
        return ()
    watch = _Stopwatch(CLOCKS[device])
    with torch.no_grad(), following(model, watch.enter, watch.leave):
        for _ in range(calls):
            own = clone(sample)
            model(*own.args, **own.kwargs)
    total = sum(watch.seconds.values()) or 1.0
    modules = dict(model.named_modules())
    hottest_first = sorted(watch.seconds.items(), key=lambda item: -item[1])
    return tuple(
        Submodule(
            path=path,
            class_name=type(modules[path]).__name__,
            calls=round(watch.calls[path] / calls),
            self_ms=seconds / calls * 1e3,
            share=seconds / total,
            allocated_bytes=allocated.get(path, 0),
            parameter_bytes=sum(p.numel() * p.element_size() for p in modules[path].parameters(recurse=False)),
        )
        for path, seconds in hottest_first[:_MOST]
    )
