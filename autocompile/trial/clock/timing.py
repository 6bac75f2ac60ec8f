"""Paired timing: short blocks of baseline and candidate alternate, and their ratios are what counts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from autocompile.core.estimate import Estimate
from autocompile.core.job import Timing
from autocompile.core.outcome import Contamination, Latency
from autocompile.trial.clock.disturbance import Watch
from autocompile.trial.clock.early_stop import MedianTest
from autocompile.trial.clock.intervals import median_interval
from autocompile.workload.samples import Sample, clone

# What waits until the device has done all that it was given: one row per device type.
CLOCKS: dict[str, Callable[[], None]] = {
    "cpu": lambda: None,
    "cuda": torch.cuda.synchronize,
}

_BLOCK_S = 0.025
_MIN_PAIRS = 8
_CALLS_WORTH_A_STAMP_S = 2e-5


class Callee(Protocol):
    """What can be timed: called like the model; `threads` as its operators should have, `module` beneath, if any."""

    threads: int
    module: nn.Module | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output."""
        ...


class OnCopies:
    """A built model that writes into its inputs, called with copies of them, so that every call is like the first."""

    def __init__(self, call: Callee) -> None:
        self._call = call
        self.threads = call.threads
        self.module = call.module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = clone(Sample(args, kwargs))
        return self._call(*own.args, **own.kwargs)


@dataclass(frozen=True)
class Subject:
    """Something to time: what to call, over which samples, with how many CPU threads, on which device.

    `weight`: what one of its passes is worth, in passes of the baseline.
    """

    call: Callee
    samples: Sequence[Sample]
    threads: int
    device_type: str
    weight: float = 1.0

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""
        CLOCKS[self.device_type]()

    def one_pass(self) -> float:
        """Seconds for one call of each sample."""
        started = time.perf_counter()
        for sample in self.samples:
            self.call(*sample.args, **sample.kwargs)
            self.synchronize()
        return time.perf_counter() - started

    def apply_threads(self) -> None:
        """Give its operators the threads they should have."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)


def subject(
    call: Callee, samples: Sequence[Sample], device_type: str, default_threads: int, weight: float = 1.0
) -> Subject:
    """A built model as something to time."""
    return Subject(call, samples, call.threads or default_threads, device_type, weight)


@dataclass(frozen=True)
class Pairs:
    """What paired timing found: the ratio (candidate over baseline), each one's latency, and the host's part."""

    ratio: Estimate
    candidate: Latency
    baseline: Latency
    contamination: Contamination
    decided: bool = False


def time_pairs(baseline: Subject, candidate: Subject, timing: Timing, seed: int) -> Pairs:
    """Alternate blocks in random order until the interval is narrow enough or the time is up.

    A block lasts some 25 ms (or one pass, if that takes longer), so that the timer's own cost stays
    below 1e-4 of it. Disturbed pairs are dropped and repeated, as long as they are not the rule. If the
    ratio is surely above `timing.rival`, it ends at once: see `trial.sequential`.
    """
    weight = candidate.weight / baseline.weight
    order = random.Random(seed)  # noqa: S311
    sides = {id(one): _Side(one, _passes_per_block(one)) for one in (baseline, candidate)}
    ratios: list[float] = []
    all_ratios: list[float] = []
    watch = Watch(candidate.device_type)
    against_rival = MedianTest(math.log(timing.rival)) if timing.rival else None
    decided = False
    deadline = time.perf_counter() + timing.limit_s
    while len(all_ratios) < 3 or time.perf_counter() < deadline:
        watch.begin()
        pair = {id(one): _block(sides[id(one)]) for one in order.sample((baseline, candidate), 2)}
        log_ratio = math.log(pair[id(candidate)].seconds / pair[id(baseline)].seconds / weight)
        all_ratios.append(log_ratio)
        disturbed = watch.disturbed()
        for key, block in pair.items():
            sides[key].take(block, disturbed=disturbed)
        if disturbed:
            continue
        ratios.append(log_ratio)
        if against_rival is not None and against_rival.observe(log_ratio):
            decided = True
            break
        enough = len(ratios) >= _MIN_PAIRS and sides[id(candidate)].calls >= timing.calls
        if enough and len(ratios) % 4 == 0 and _precise(ratios, timing.precision):
            break
    mostly_quiet = len(ratios) * 2 >= len(all_ratios)
    return Pairs(
        ratio=_exponential(median_interval(ratios if mostly_quiet else all_ratios)),
        candidate=sides[id(candidate)].latency(with_disturbed=not mostly_quiet),
        baseline=sides[id(baseline)].latency(with_disturbed=not mostly_quiet),
        contamination=watch.verdict(),
        decided=decided,
    )


@dataclass(frozen=True)
class _Block:
    """`seconds` a pass, and those of single calls where a call is long enough to carry a time stamp."""

    seconds: float
    calls: list[float]


class _Side:
    """One of the two, with the blocks that were timed of it."""

    def __init__(self, one: Subject, passes: int) -> None:
        self.one, self.passes = one, passes
        self._quiet: list[_Block] = []
        self._disturbed: list[_Block] = []

    def take(self, block: _Block, *, disturbed: bool) -> None:
        """Keep a block."""
        (self._disturbed if disturbed else self._quiet).append(block)

    @property
    def calls(self) -> int:
        """How many undisturbed calls were timed."""
        return sum(len(block.calls) for block in self._quiet)

    def latency(self, *, with_disturbed: bool) -> Latency:
        """Over the blocks that were not disturbed, unless that was the rule."""
        blocks = self._quiet + (self._disturbed if with_disturbed else [])
        calls = [seconds for block in blocks for seconds in block.calls]
        mean_s = float(np.median([block.seconds for block in blocks])) / len(self.one.samples)
        p50, p90, p95, p99 = (float(q) * 1e3 for q in np.quantile(calls, (0.5, 0.9, 0.95, 0.99)))
        return Latency(mean_ms=mean_s * 1e3, p50_ms=p50, p90_ms=p90, p95_ms=p95, p99_ms=p99, calls=len(calls))


def _passes_per_block(one: Subject) -> int:
    one.apply_threads()
    one.one_pass()
    fastest = one.one_pass()
    if fastest < _BLOCK_S:
        fastest = min(fastest, one.one_pass(), one.one_pass())
    return max(1, math.ceil(_BLOCK_S / max(fastest, 1e-7)))


def _block(side: _Side) -> _Block:
    one, passes = side.one, side.passes
    switches_threads = torch.get_num_threads() != one.threads
    one.apply_threads()
    if switches_threads:
        one.one_pass()
    clock, call, synchronize = time.perf_counter, one.call, CLOCKS[one.device_type]
    marks = []
    started = clock()
    for _ in range(passes):
        for sample in one.samples:
            call(*sample.args, **sample.kwargs)
            synchronize()
            marks.append(clock())
    elapsed = clock() - started
    each = elapsed / (passes * len(one.samples))
    calls = np.diff(np.array([started, *marks])).tolist() if each >= _CALLS_WORTH_A_STAMP_S else [each]
    return _Block(elapsed / passes, calls)


def _precise(log_ratios: list[float], precision: float) -> bool:
    interval = median_interval(log_ratios)
    return (interval.high - interval.low) / 2 <= precision


def _exponential(log: Estimate) -> Estimate:
    return Estimate(value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high))
