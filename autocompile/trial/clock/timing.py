"""Paired timing: short blocks of baseline and candidate alternate, and their ratios are what counts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from autocompile.core.errors import InvalidWorkload
from autocompile.core.estimate import Estimate
from autocompile.core.job import Timing
from autocompile.core.outcome import Contamination, Latency
from autocompile.trial.clock.devices import DEVICES
from autocompile.trial.clock.disturbance import HostWatch
from autocompile.trial.clock.early_stop import MedianTest
from autocompile.trial.clock.intervals import median_interval
from autocompile.workload.samples import Sample
from autocompile.workload.state import State
from autocompile.workload.step import Step

_BLOCK_S = 0.025
_MIN_PAIRS = 8
_CALLS_WORTH_A_STAMP_S = 2e-5
# Threads that have nothing to do any more go on spinning, and take a core from those of another library: torch's OpenMP
# threads for some 10 ms, ONNX Runtime's for much longer, which made eager read 1.6 times slower than it is. So before a
# block it is waited until the process takes no more than a share of a core's time. The system brings the time of other
# threads up to date every 4 to 10 ms, which is why no shorter span tells.
_GLANCE_S, _ASLEEP_SHARE, _LONGEST_WAIT_S = 0.012, 0.25, 0.5


@dataclass(frozen=True)
class Subject:
    """Something to time: a step, over which samples, with how many CPU threads, on which device.

    `weight`: what one of its passes is worth, in passes of the baseline. `settles`: before each of its blocks
    the other side's threads are to have gone to sleep, as these are another library's.
    """

    step: Step
    samples: Sequence[Sample]
    threads: int
    device_type: str
    weight: float = 1.0
    settles: bool = False

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""
        DEVICES[self.device_type].synchronize()

    def one_pass(self) -> float:
        """Seconds for one run on each sample."""
        started = time.perf_counter()
        for sample in self.samples:
            self.step.run(sample)
            self.synchronize()
        return time.perf_counter() - started

    def apply_threads(self) -> None:
        """Give its operators the threads they should have."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)


def subject(
    step: Step,
    samples: Sequence[Sample],
    device_type: str,
    default_threads: int,
    weight: float = 1.0,
    *,
    settles: bool = False,
) -> Subject:
    """A step as something to time."""
    return Subject(step, samples, step.threads or default_threads, device_type, weight, settles)


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
    ratio is surely above `timing.rival`, it ends at once: see `trial.clock.early_stop`.

    Both sides are left as they were, also after an exception: what they change is copied before the first block and put
    back after the last. Raises InvalidWorkload if one changed what the other has too.
    """
    with baseline.step.preserved(), candidate.step.preserved(), _apart(baseline.step.state, candidate.step.state):
        in_a_row = timing.in_a_row and DEVICES[candidate.device_type].queues
        sides = _side(baseline, in_a_row=in_a_row), _side(candidate, in_a_row=in_a_row)
        return _alternated(*sides, timing, random.Random(seed))  # noqa: S311


@contextmanager
def _apart(one: State, other: State) -> Iterator[None]:
    """Raises InvalidWorkload afterwards if what both have was changed: then each was timed on what the other left."""
    shared = {**one.shared_with(other), **other.shared_with(one)}
    before = {name: tensor.detach().clone() for name, tensor in shared.items()}
    yield
    changed = next((name for name, tensor in shared.items() if not _is_same(tensor, before[name])), "")
    if changed:
        raise InvalidWorkload(
            f"a call changes {changed}, and a copy of the model shares it, so two cannot be timed side by side",
            remedy="have its copy.deepcopy give that a tensor of its own, or keep it from changing",
        )


def _is_same(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    return torch.equal(tensor.nan_to_num(), before.nan_to_num())


def _alternated(baseline: _Side, candidate: _Side, timing: Timing, order: random.Random) -> Pairs:
    ratios = _Ratios(candidate.subject.weight / baseline.subject.weight)
    host = HostWatch(candidate.subject.device_type)
    against_rival = MedianTest(math.log(timing.rival)) if timing.rival else None
    decided = False
    deadline = time.perf_counter() + timing.limit_s
    while ratios.pairs < 3 or time.perf_counter() < deadline:
        host.begin()
        pair = {id(side): _block(side) for side in order.sample((baseline, candidate), 2)}
        disturbed = host.disturbed()
        for side in (baseline, candidate):
            side.take(pair[id(side)], disturbed=disturbed)
        log_ratio = ratios.take(pair[id(baseline)], pair[id(candidate)], disturbed=disturbed)
        if disturbed:
            continue
        if against_rival is not None and against_rival.observe(log_ratio):
            decided = True
            break
        if candidate.calls >= timing.calls and ratios.within(timing.precision):
            break
    return Pairs(
        ratio=ratios.interval(),
        candidate=candidate.latency(with_disturbed=not ratios.mostly_quiet),
        baseline=baseline.latency(with_disturbed=not ratios.mostly_quiet),
        contamination=host.verdict(),
        decided=decided,
    )


@dataclass(frozen=True)
class _Block:
    """`seconds` a pass, and those of single runs where a run is long enough to carry a time stamp."""

    seconds: float
    calls: list[float]


class _Side:
    """One of the two, with the blocks that were timed of it."""

    def __init__(self, subject: Subject, passes: int, *, in_a_row: bool) -> None:
        self.subject, self.passes, self.in_a_row = subject, passes, in_a_row
        self._quiet: list[_Block] = []
        self._disturbed: list[_Block] = []

    def take(self, block: _Block, *, disturbed: bool) -> None:
        """Keep a block."""
        (self._disturbed if disturbed else self._quiet).append(block)

    @property
    def calls(self) -> int:
        """How many undisturbed runs were timed."""
        return sum(len(block.calls) for block in self._quiet)

    def latency(self, *, with_disturbed: bool) -> Latency:
        """Over the blocks that were not disturbed, unless that was the rule."""
        blocks = self._quiet + (self._disturbed if with_disturbed else [])
        calls = [seconds for block in blocks for seconds in block.calls]
        mean_s = float(np.median([block.seconds for block in blocks])) / len(self.subject.samples)
        p50, p90, p95, p99 = (float(q) * 1e3 for q in np.quantile(calls, (0.5, 0.9, 0.95, 0.99)))
        return Latency(mean_ms=mean_s * 1e3, p50_ms=p50, p90_ms=p90, p95_ms=p95, p99_ms=p99, calls=len(calls))


class _Ratios:
    """Logarithms of candidate over baseline, a pair each; `weight` is what the candidate's pass is worth."""

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._quiet: list[float] = []
        self._all: list[float] = []

    def take(self, baseline: _Block, candidate: _Block, *, disturbed: bool) -> float:
        """Keep a pair; its own log ratio."""
        log_ratio = math.log(candidate.seconds / baseline.seconds / self._weight)
        self._all.append(log_ratio)
        if not disturbed:
            self._quiet.append(log_ratio)
        return log_ratio

    @property
    def pairs(self) -> int:
        """How many were timed, disturbed ones included."""
        return len(self._all)

    @property
    def mostly_quiet(self) -> bool:
        """Whether disturbed pairs are not the rule."""
        return len(self._quiet) * 2 >= len(self._all)

    def within(self, precision: float) -> bool:
        """Whether half the interval is that narrow, after enough pairs; looked at after every fourth."""
        if len(self._quiet) < _MIN_PAIRS or len(self._quiet) % 4:
            return False
        interval = median_interval(self._quiet)
        return (interval.high - interval.low) / 2 <= precision

    def interval(self) -> Estimate:
        """The median ratio, over the pairs that were not disturbed, unless that was the rule."""
        log = median_interval(self._quiet if self.mostly_quiet else self._all)
        return Estimate(value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high))


def _side(subject: Subject, *, in_a_row: bool) -> _Side:
    """With as many passes to a block as it takes to last."""
    subject.apply_threads()
    subject.one_pass()
    fastest = subject.one_pass()
    if fastest < _BLOCK_S:
        fastest = min(fastest, subject.one_pass(), subject.one_pass())
    side = _Side(subject, _passes_of(fastest), in_a_row=in_a_row)
    # In a row they take less than one by one.
    return _Side(subject, _passes_of(_block(side).seconds), in_a_row=True) if in_a_row else side


def _passes_of(pass_s: float) -> int:
    """How many of these it takes for a block to last."""
    return max(1, math.ceil(_BLOCK_S / max(pass_s, 1e-7)))


def settle() -> None:
    """Wait until no thread of this process computes or spins any more."""
    until = time.perf_counter() + _LONGEST_WAIT_S
    while time.perf_counter() < until:
        before = time.process_time()
        time.sleep(_GLANCE_S)
        if time.process_time() - before < _ASLEEP_SHARE * _GLANCE_S:
            return


def _block(side: _Side) -> _Block:
    subject, passes = side.subject, side.passes
    switches_threads = torch.get_num_threads() != subject.threads
    subject.apply_threads()
    if switches_threads:
        subject.one_pass()
    if subject.settles:
        settle()
        subject.one_pass()
    clock, run, synchronize = time.perf_counter, subject.step.run, DEVICES[subject.device_type].synchronize
    marks = []
    started = clock()
    for _ in range(passes):
        for sample in subject.samples:
            run(sample)
            if not side.in_a_row:
                synchronize()
                marks.append(clock())
    synchronize()
    elapsed = clock() - started
    each = elapsed / (passes * len(subject.samples))
    stamped = each >= _CALLS_WORTH_A_STAMP_S and not side.in_a_row
    calls = np.diff(np.array([started, *marks])).tolist() if stamped else [each]
    return _Block(elapsed / passes, calls)
