"""Measure time and memory by submodule."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from statistics import median

from torch import nn

from autocompile.core.profile import Submodule
from autocompile.trial.clock.devices import DEVICES
from autocompile.trial.profile.submodules import following
from autocompile.workload.samples import Sample, clone
from autocompile.workload.step import Step

_MOST = 200
_MOST_CALLS, _LOOKING_S = 20, 0.5


class _Stopwatch:
    """Seconds by submodule path, each without the time of its children."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._synchronize = synchronize
        self._running: list[str] = []
        self._since = 0.0

    def enter(self, path: str) -> None:
        """Start the clock of a submodule, and pause that of its parent."""
        self._book()
        self._running.append(path)
        self.calls[path] += 1

    def leave(self) -> None:
        """Stop the clock of the submodule, and resume that of its parent."""
        self._book()
        self._running.pop()

    def _book(self) -> None:
        self._synchronize()
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = time.perf_counter()


def hottest(step: Step, sample: Sample, device: str, allocated: Mapping[str, int]) -> tuple[Submodule, ...]:
    """Return up to 200 submodules with the largest share of a step's time, without their children, largest first.

    Times are medians over the calls that fit into half a second: at least 1, at most 20. On a GPU, the device is
    synchronized around each submodule, which removes overlap. A function has no submodules.
    """
    if step.module is None:
        return ()
    looks = _looks(step, step.module, sample, device)
    modules = dict(step.module.named_modules())
    taken = {path: median(look.seconds[path] for look in looks) for path in looks[0].seconds}
    total = sum(taken.values()) or 1.0
    return tuple(
        Submodule(
            path=path,
            class_name=type(modules[path]).__name__,
            calls=looks[0].calls[path],
            self_ms=seconds * 1e3,
            share=seconds / total,
            whole_share=sum(taken[other] for other in taken if _within(other, path)) / total,
            allocated_bytes=allocated.get(path, 0),
            parameter_bytes=sum(p.numel() * p.element_size() for p in modules[path].parameters(recurse=False)),
        )
        for path, seconds in sorted(taken.items(), key=lambda item: -item[1])[:_MOST]
    )


def _within(other: str, path: str) -> bool:
    return not path or other == path or other.startswith(f"{path}.")


def _looks(step: Step, module: nn.Module, sample: Sample, device: str) -> list[_Stopwatch]:
    looks: list[_Stopwatch] = []
    ends = time.perf_counter() + _LOOKING_S
    while not looks or (len(looks) < _MOST_CALLS and time.perf_counter() < ends):
        own, stopwatch = clone(sample), _Stopwatch(DEVICES[device].synchronize)
        with following(module, stopwatch.enter, stopwatch.leave):
            step.work(own)
        looks.append(stopwatch)
    return looks
