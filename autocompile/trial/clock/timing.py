"""Paired timing: short blocks of baseline and candidate alternate, and the result is the ratio of each pair."""

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
# Threads that have finished their work keep spinning, and take cores from the threads of another library: torch's
# OpenMP threads for some 10 ms, ONNX Runtime's for much longer, which made eager appear 1.6 times slower than it is.
# Before a block, autocompile therefore waits until the process uses no more than this share of a core's time. The
# system updates the CPU time of other threads every 4 to 10 ms, so a shorter span would show nothing.
_GLANCE_S, _ASLEEP_SHARE, _LONGEST_WAIT_S = 0.012, 0.25, 0.5


@dataclass(frozen=True)
class Subject:
    """One side of a timing: a step, its samples, the number of CPU threads, and the type of device.

    `weight`: how many passes of the baseline one of its passes is worth. `settles`: whether to wait before each of its
    blocks until the threads of the other side, which belong to another library, have gone to sleep.
    """

    step: Step
    samples: Sequence[Sample]
    threads: int
    device_type: str
    weight: float = 1.0
    settles: bool = False

    def synchronize(self) -> None:
        """Wait until the device has finished all queued work."""
        DEVICES[self.device_type].synchronize()

    def one_pass(self) -> float:
        """Return the seconds for one run on each sample."""
        started = time.perf_counter()
        for sample in self.samples:
            self.step.run(sample)
            self.synchronize()
        return time.perf_counter() - started

    def apply_threads(self) -> None:
        """Set the number of torch's CPU threads to this side's."""
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
    """Return a Subject for a step, with the step's own number of threads or else `default_threads`."""
    return Subject(step, samples, step.threads or default_threads, device_type, weight, settles)


@dataclass(frozen=True)
class Pairs:
    """The result of a paired timing: the ratio (candidate over baseline), both latencies, and disturbances.

    `decided`: whether the timing ended early because the candidate is surely slower than its rival.
    """

    ratio: Estimate
    candidate: Latency
    baseline: Latency
    contamination: Contamination
    decided: bool = False


def time_pairs(baseline: Subject, candidate: Subject, timing: Timing, seed: int) -> Pairs:
    """Alternate blocks in random order until the interval is narrow enough or the time is up.

    A block lasts some 25 ms (or one pass, if that takes longer), so that the timer's own cost stays below 1e-4 of it.
    Disturbed pairs are dropped and repeated, unless most pairs are disturbed. If the ratio is surely above
    `timing.rival`, the timing ends at once: see `trial.clock.early_stop`.

    Both sides are left unchanged, even after an exception: the state that they change is copied before the first block
    and restored after the last. Raises InvalidWorkload if one side changed a tensor that the other side shares.
    """
    with baseline.step.preserved(), candidate.step.preserved(), _apart(baseline.step.state, candidate.step.state):
        in_a_row = timing.in_a_row and DEVICES[candidate.device_type].queues
        sides = _side(baseline, in_a_row=in_a_row), _side(candidate, in_a_row=in_a_row)
        return _alternated(*sides, timing, random.Random(seed))  # noqa: S311


@contextmanager
def _apart(one: State, other: State) -> Iterator[None]:
    """Raise InvalidWorkload after the body if a shared tensor was changed: each side would see the other's changes."""
    shared = {**one.shared_with(other), **other.shared_with(one)}
    before = {name: tensor.detach().clone() for name, tensor in shared.items()}
    yield
    changed = next((name for name, tensor in shared.items() if not _is_same(tensor, before[name])), "")
    if changed:
        raise InvalidWorkload(
            f"a call changes {changed}, and a copy of the model shares it, so two cannot be timed side by side",
            remedy="make copy.deepcopy of the model copy that tensor, too, or keep the tensor from changing",
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
    """One timed block: `seconds` per pass, and the seconds of single runs if these are long enough for a time stamp."""

    seconds: float
    calls: list[float]


class _Side:
    """One of the two sides, with its timed blocks."""

    def __init__(self, subject: Subject, passes: int, *, in_a_row: bool) -> None:
        self.subject, self.passes, self.in_a_row = subject, passes, in_a_row
        self._quiet: list[_Block] = []
        self._disturbed: list[_Block] = []

    def take(self, block: _Block, *, disturbed: bool) -> None:
        """Add a block."""
        (self._disturbed if disturbed else self._quiet).append(block)

    @property
    def calls(self) -> int:
        """The number of undisturbed timed runs."""
        return sum(len(block.calls) for block in self._quiet)

    def latency(self, *, with_disturbed: bool) -> Latency:
        """Return the latency over the undisturbed blocks, or over all blocks with `with_disturbed`."""
        blocks = self._quiet + (self._disturbed if with_disturbed else [])
        calls = [seconds for block in blocks for seconds in block.calls]
        mean_s = float(np.median([block.seconds for block in blocks])) / len(self.subject.samples)
        p50, p90, p95, p99 = (float(q) * 1e3 for q in np.quantile(calls, (0.5, 0.9, 0.95, 0.99)))
        return Latency(mean_ms=mean_s * 1e3, p50_ms=p50, p90_ms=p90, p95_ms=p95, p99_ms=p99, calls=len(calls))


class _Ratios:
    """Logarithms of candidate over baseline, one per pair. `weight`: how many passes the candidate's pass is worth."""

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._quiet: list[float] = []
        self._all: list[float] = []

    def take(self, baseline: _Block, candidate: _Block, *, disturbed: bool) -> float:
        """Add a pair, and return its log ratio."""
        log_ratio = math.log(candidate.seconds / baseline.seconds / self._weight)
        self._all.append(log_ratio)
        if not disturbed:
            self._quiet.append(log_ratio)
        return log_ratio

    @property
    def pairs(self) -> int:
        """The number of timed pairs, including disturbed ones."""
        return len(self._all)

    @property
    def mostly_quiet(self) -> bool:
        """Whether at least half of the pairs are undisturbed."""
        return len(self._quiet) * 2 >= len(self._all)

    def within(self, precision: float) -> bool:
        """Whether half the interval's width is at most `precision`, after enough pairs. Checked after every fourth."""
        if len(self._quiet) < _MIN_PAIRS or len(self._quiet) % 4:
            return False
        interval = median_interval(self._quiet)
        return (interval.high - interval.low) / 2 <= precision

    def interval(self) -> Estimate:
        """Return the median ratio over the undisturbed pairs, or over all pairs if most are disturbed."""
        log = median_interval(self._quiet if self.mostly_quiet else self._all)
        return Estimate(value=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high))


def _side(subject: Subject, *, in_a_row: bool) -> _Side:
    """Return a side with enough passes per block for the block to last long enough."""
    subject.apply_threads()
    subject.one_pass()
    fastest = subject.one_pass()
    if fastest < _BLOCK_S:
        fastest = min(fastest, subject.one_pass(), subject.one_pass())
    side = _Side(subject, _passes_of(fastest), in_a_row=in_a_row)
    # Passes in a row take less time each than single passes.
    return _Side(subject, _passes_of(_block(side).seconds), in_a_row=True) if in_a_row else side


def _passes_of(pass_s: float) -> int:
    """Return how many passes of `pass_s` seconds a block needs."""
    return max(1, math.ceil(_BLOCK_S / max(pass_s, 1e-7)))


def settle() -> None:
    """Wait until the threads of this process no longer compute or spin, for half a second at most."""
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
