"""Paired timing: short blocks of baseline and candidate alternate, and their ratios are what counts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from autocompile.core.estimate import Estimate
from autocompile.core.job import Timing
from autocompile.core.outcome import Contamination, Latency
from autocompile.trial.contamination import Watch
from autocompile.trial.intervals import median_interval
from autocompile.trial.sequential import MedianTest
from autocompile.workload.build import Built
from autocompile.workload.samples import Sample

# What waits until the device has done all that it was given: one row per device type.
CLOCKS: dict[str, Callable[[], None]] = {
    "cpu": lambda: None,
    "cuda": torch.cuda.synchronize,
}

_BLOCK_S = 0.025
_MIN_PAIRS = 8
_CALLS_WORTH_A_STAMP_S = 5e-4


@dataclass(frozen=True)
class Subject:
    """Something to time: what to call, over which samples, with how many CPU threads, on which device."""

    call: Built
    samples: Sequence[Sample]
    threads: int
    device_type: str

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


def subject(call: Built, samples: Sequence[Sample], device_type: str, default_threads: int) -> Subject:
    """A built model as something to time."""
    return Subject(call, samples, call.threads or default_threads, device_type)


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
    order = random.Random(seed)  # noqa: S311
    passes = {id(one): _passes_per_block(one) for one in (baseline, candidate)}
    stamps: dict[int, list[float]] = {id(baseline): [], id(candidate): []}
    ratios: list[float] = []
    all_ratios: list[float] = []
    watch = Watch(candidate.device_type)
    against_rival = MedianTest(math.log(timing.rival)) if timing.rival else None
    decided = False
    deadline = time.perf_counter() + timing.limit_s
    while len(all_ratios) < 3 or time.perf_counter() < deadline:
        watch.begin()
        pair = {}
        for one in order.sample((baseline, candidate), 2):
            pair[id(one)] = _block(one, passes[id(one)], stamps[id(one)])
        log_ratio = math.log(pair[id(candidate)] / pair[id(baseline)])
        all_ratios.append(log_ratio)
        if watch.disturbed():
            continue
        ratios.append(log_ratio)
        if against_rival is not None and against_rival.observe(log_ratio):
            decided = True
            break
        if len(ratios) >= _MIN_PAIRS and len(ratios) % 4 == 0 and _precise(ratios, timing.precision):
            break
    kept = ratios if len(ratios) * 2 >= len(all_ratios) else all_ratios
    return Pairs(
        ratio=_exponential(median_interval(kept)),
        candidate=_latency(stamps[id(candidate)]),
        baseline=_latency(stamps[id(baseline)]),
        contamination=watch.verdict(),
        decided=decided,
    )


def _passes_per_block(one: Subject) -> int:
    one.apply_threads()
    one.one_pass()
    return max(1, math.ceil(_BLOCK_S / max(min(one.one_pass() for _ in range(3)), 1e-7)))


def _block(one: Subject, passes: int, stamps: list[float]) -> float:
    """Seconds per pass. Collects seconds of single calls where a call is long enough to carry a time stamp."""
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
    calls = passes * len(one.samples)
    if elapsed / calls >= _CALLS_WORTH_A_STAMP_S:
        stamps.extend(np.diff(np.array([started, *marks])).tolist())
    else:
        stamps.append(elapsed / calls)
    return elapsed / passes


def _precise(log_ratios: list[float], precision: float) -> bool:
    interval = median_interval(log_ratios)
    return (interval.high - interval.low) / 2 <= precision


def _exponential(log: Estimate) -> Estimate:
    return Estimate(value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high))


def _latency(seconds: list[float]) -> Latency:
    p50, p90, p95, p99 = (float(q) * 1e3 for q in np.quantile(seconds, (0.5, 0.9, 0.95, 0.99)))
    return Latency(p50_ms=p50, p90_ms=p90, p95_ms=p95, p99_ms=p99, calls=len(seconds))
