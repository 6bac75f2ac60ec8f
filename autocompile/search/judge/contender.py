"""The measured figures of a candidate, and when one candidate counts as faster than another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median

from autocompile.core.envelope import Line
from autocompile.core.estimate import Estimate
from autocompile.core.goal import Goal
from autocompile.core.outcome import Measurement
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind_of
from autocompile.search.judge.scatter import Scatter, ratio_of, ratio_of_one_more, scatter_of

# Relative half-width of the interval of a start-up: compile times of one program differ this much between processes.
STARTUP_UNCERTAINTY = 0.15
_USUAL_TAIL_SCATTER = 0.05
# Start-up is measured once, so smaller differences than these do not count.
_NOTABLE_START_S, _NOTABLE_START_SHARE = 0.5, 0.25

_NONE = Estimate(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Contender:
    """A measured candidate: `startup_s` is paid once, `latency_s` for the samples of one of the baseline's calls.

    `packing_s` is one process's share of the time to compile the artifact that all processes load.

    `number`, `label`, `origin` and `changes` are those of its trial. `processes` counts the processes that measured it.
    `is_finalist` tells whether any of them ran after the screening. `ratio` is its time per sample over the baseline's.
    `floor` is the relative difference in latency below which this run calls nothing faster. `tail` is the ratio of the
    goal's latency percentile to the mean latency, with the scatter between processes as its interval. `excess` maps
    each constraint to how far the candidate exceeds it, relative to the limit; the constraint is met at or below 0.
    `one_more` is `ratio` with the interval in which one more process would measure it; nothing is decided by it.
    `noisy` tells whether all its processes were timed while other programs used the host's CPU or GPU.
    """

    number: int
    label: str
    origin: str
    changes: int
    processes: int
    is_finalist: bool
    ratio: Estimate
    latency_s: Estimate
    startup_s: float
    packing_s: float = 0.0
    floor: float = 0.0
    tail: Estimate = _NONE
    excess: dict[str, float] = field(default_factory=dict)
    one_more: Estimate = _NONE
    noisy: bool = False

    def is_disturbed(self, calls: float) -> bool:
        """Whether other programs may distort its cost. The baseline's ratio is 1 by definition, its tail is not."""
        counts_tail = math.isinf(calls) and self.tail != _NONE
        return self.noisy and (self.origin != "baseline" or counts_tail)

    @property
    def is_feasible(self) -> bool:
        """Whether it meets every constraint."""
        return self.worst_excess <= 0

    @property
    def worst_excess(self) -> float:
        """How far it exceeds the constraint that it violates most; at or below 0 if it violates no constraint."""
        return max(self.excess.values(), default=0.0)

    @property
    def once_s(self) -> float:
        """What a process pays once, in seconds: its start-up, and its share of packing."""
        return self.startup_s + self.packing_s

    def per_call_s(self, calls: float) -> Estimate:
        """Amortized seconds per call. The interval combines the intervals of the latency and of the start-up.

        With infinitely many calls, only the latency (with its `tail`) counts.
        """
        return Estimate.around(*self.cost(calls))

    def cost(self, calls: float) -> tuple[float, float]:
        """The amortized seconds per call, as the value and the relative half-width of its interval."""
        each = self.latency_s
        if math.isinf(calls):
            return each.value * self.tail.value, math.hypot(each.relative_halfwidth, self.tail.relative_halfwidth)
        once = self.once_s / calls
        value = once + each.value
        return value, math.hypot(each.value * each.relative_halfwidth, once * STARTUP_UNCERTAINTY) / value

    @property
    def line(self) -> Line:
        """Its start-up and its latency, with the half-widths of their intervals."""
        each = self.latency_s
        return Line(
            self.label,
            self.once_s,
            each.value,
            self.once_s * STARTUP_UNCERTAINTY,
            each.value * each.relative_halfwidth,
        )


def baseline_seconds(trials: Sequence[Trial]) -> float:
    """Return the run's one baseline latency in seconds: the median over the baseline timings of all processes."""
    return median(m.baseline.mean_ms for trial in trials for m in trial.measurements) / 1e3


def contenders_of(trials: Sequence[Trial], goal: Goal) -> list[Contender]:
    """Return a contender for each measured trial of one run.

    Latencies are paired ratios times the run's baseline latency. Ratios leave out what eager's own bias in a process
    adds to them (`steadied`).
    """
    measured = [trial for trial in trials if trial.measurement is not None]
    if not measured:
        return []
    run = _Run(goal, scatter_of(measured), baseline_seconds(measured), _tail_scatter(measured, goal))
    return [_contender(trial, run) for trial in measured]


def once_packed(contender: Contender) -> Contender:
    """Return the contender without its packing time, which is spent already, whichever candidate is chosen."""
    return replace(contender, packing_s=0.0)


@dataclass(frozen=True)
class _Run:
    """What the contenders of one run have in common."""

    goal: Goal
    scatter: Scatter
    baseline_s: float
    tail_scatter: float


def _contender(trial: Trial, run: _Run) -> Contender:
    startup_s, packing_s = _once_s(trial, run.goal)
    ratio = ratio_of(trial, run.scatter)
    latency_s = ratio.scaled(run.baseline_s)
    tail = Estimate.around(_tail(trial, run.goal), run.tail_scatter / math.sqrt(len(trial.measurements)))
    call_s = latency_s.value * tail.value * trial.batch_factor
    return Contender(
        number=trial.number,
        label=trial.label,
        origin=trial.origin,
        changes=trial.changes,
        processes=len(trial.measurements),
        is_finalist=bool(trial.finals) or trial.served_s is not None,
        ratio=ratio,
        latency_s=latency_s,
        startup_s=startup_s,
        packing_s=packing_s,
        floor=run.scatter.floor,
        tail=tail if run.goal.objective == "latency" else _NONE,
        excess=_excess(trial, run.goal, call_s=call_s, startup_s=startup_s),
        one_more=ratio_of_one_more(trial, run.scatter),
        noisy=trial.is_noisy,
    )


def _once_s(trial: Trial, goal: Goal) -> tuple[float, float]:
    """Return the seconds that a process takes to start in the way that the goal asks for, and its share of packing.

    Where a process compiles from a cache, the start is that of the last process that found a cache. If no process found
    one yet, it is the usual time.
    """
    kind = kind_of(trial.plan)
    if not goal.loads_artifacts:
        return trial.startup_s, 0.0
    if kind.packs_as is None:
        return trial.startup_s if trial.served_s is None else trial.served_s, 0.0
    assert trial.measurement is not None
    packing_s = trial.measurement.startup.pack_s / goal.processes
    if trial.served_s is not None:
        return trial.served_s, packing_s
    if kind.packs_as == "load":
        return trial.startup_s, packing_s
    cold = trial.measurement.startup
    warm_s = trial.finals[-1].startup.compile_s if trial.finals else kind.warm_s(cold.compile_s)
    return cold.total_s - cold.compile_s + min(warm_s, cold.compile_s), packing_s


def _tail(trial: Trial, goal: Goal) -> float:
    """Return the percentile that the goal names over the mean latency, averaged over the processes."""
    return mean(_over_mean(m, goal) for m in trial.measurements)


def _tail_scatter(trials: Sequence[Trial], goal: Goal) -> float:
    """Return the half-width of the 95% interval of one process's log tail: two pooled standard deviations.

    The standard deviation is pooled over the processes of all candidates. A usual value stands in where few candidates
    were measured more than once.
    """
    if goal.objective != "latency":
        return 0.0
    squares, freedom = _USUAL_TAIL_SCATTER**2, 1
    for trial in trials:
        logs = [math.log(_over_mean(m, goal)) for m in trial.measurements]
        squares += sum((x - mean(logs)) ** 2 for x in logs)
        freedom += len(logs) - 1
    return 2 * math.sqrt(squares / freedom)


def _over_mean(measurement: Measurement, goal: Goal) -> float:
    latency = measurement.latency
    return float(getattr(latency, f"p{goal.percentile or 50}_ms")) / latency.mean_ms


def _excess(trial: Trial, goal: Goal, *, call_s: float, startup_s: float) -> dict[str, float]:
    asked = goal.entry()
    memory = max(m.peak_memory_bytes for m in trial.measurements)
    pairs = {
        "max_latency": (call_s * 1e3, asked.max_latency_ms),
        "max_startup": (startup_s, asked.max_startup_s),
        "max_memory": (memory, asked.max_memory_bytes),
    }
    return {name: value / limit - 1 for name, (value, limit) in pairs.items() if limit is not None}


def beats(contender: Contender, other: Contender, calls: float) -> bool:
    """Whether `contender` is faster than `other` with 95% confidence, and by more than the run's own A/A margin.

    Always false for a candidate that was timed on a noisy host. Load from other programs is not random scatter that an
    interval could cover: it shifts all processes alike, and each program by a different factor. Next to one busy
    process on two cores, a program that takes 0.7 times the baseline's time repeatedly took 1.7 times of it
    (`studies/trust`, agreement). The baseline may have been timed on a noisy host, if only its ratio matters. A shorter
    start-up counts only if it is notably shorter, and not compared with a start on a noisy host.
    """
    if contender.is_disturbed(calls) or other.is_disturbed(calls) or not _ahead(contender, other, calls):
        return False
    sooner = starts_sooner(contender, other) and not other.noisy
    if math.isinf(calls) or contender.once_s >= other.once_s or sooner:
        return True
    same = replace(contender, startup_s=other.startup_s, packing_s=other.packing_s)
    return _ahead(same, other, calls)


def _ahead(contender: Contender, other: Contender, calls: float) -> bool:
    mine, theirs = contender.cost(calls), other.cost(calls)
    return mine[0] < theirs[0] and gain(contender, other, calls) > open_between(contender, other, calls)


def starts_sooner(contender: Contender, other: Contender) -> bool:
    """Whether `contender` starts notably sooner. Start-up is measured once, so a small difference does not count."""
    return other.once_s - contender.once_s > max(_NOTABLE_START_S, _NOTABLE_START_SHARE * other.once_s)


def dominates(contender: Contender, other: Contender, calls: float) -> bool:
    """Whether `contender` reads as good as `other` in every column, and better in at least one.

    The columns are amortized time, latency, start-up and number of changes.
    """
    mine, theirs = _columns(contender, calls), _columns(other, calls)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def no_worse(contender: Contender, other: Contender, calls: float) -> bool:
    """Whether `contender` is as simple as `other`, reads as fast per call or faster, and starts not notably later."""
    if contender.changes > other.changes or starts_sooner(other, contender):
        return False
    quick = contender.latency_s.value <= other.latency_s.value
    return quick and (math.isfinite(calls) or contender.cost(calls)[0] <= other.cost(calls)[0])


def _columns(contender: Contender, calls: float) -> tuple[float, float, float, int]:
    return contender.cost(calls)[0], contender.latency_s.value, contender.once_s, contender.changes


def gain(contender: Contender, other: Contender, calls: float) -> float:
    """Return how far `contender` is ahead of `other`: the logarithm of the ratio of their amortized times."""
    return math.log(other.cost(calls)[0] / contender.cost(calls)[0])


def open_between(contender: Contender, other: Contender, calls: float) -> float:
    """Return the largest difference between the two, on the log scale, that the measurements cannot resolve."""
    (mine, half), (_theirs, other_half) = contender.cost(calls), other.cost(calls)
    floor = contender.floor * contender.latency_s.value / mine if math.isfinite(calls) else contender.floor
    return max(math.hypot(half, other_half), floor)


def disturbed_ahead(ranking: Sequence[Contender], winner: Contender, calls: float) -> tuple[Contender, ...]:
    """Return the candidates that read faster than the winner, but were only timed while other programs used the host.

    `ranking` has the fastest first, and so has the result.
    """
    mine = winner.per_call_s(calls).value
    ahead = (c for c in ranking if c.is_disturbed(calls) and c.per_call_s(calls).value < mine)
    return tuple(c for c in ahead if c.is_feasible)


def hopeless(contender: Contender, best: Contender, calls: float) -> bool:
    """Whether it is too far behind to win if measured again: by more than twice the uncertainty of the difference."""
    (_best, best_half), (_mine, half) = best.cost(calls), contender.cost(calls)
    return gain(best, contender, calls) > 2 * math.hypot(best_half, half)
