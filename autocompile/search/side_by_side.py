"""Several candidates under way: they are compiled side by side, and what is compiled is measured one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from msgspec.structs import replace

from autocompile.core.document import LaneEntry
from autocompile.core.job import CompiledAhead, Limits, Packed
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.runner import PendingReply
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of
from autocompile.search.allowance import allowance
from autocompile.search.archive import Archive, Claim
from autocompile.search.attempt import conclude, task_of
from autocompile.search.errand import Errand
from autocompile.search.others import waits_for
from autocompile.search.packages import Packing, begin_packing, drop, is_loaded
from autocompile.search.precompiled import Compiling, begin_compiling
from autocompile.search.run import Bench
from autocompile.search.wanted import Wanted, search_time_s
from autocompile.space.space import Space

# Beside those that compile: one that is measured, and one that is to be next.
_BEYOND_COMPILING = 2
# A child starts.
_START_S = 1.0
# It is no use to measure for less.
_LEAST_S = 1.0
# What may have happened to a child just because others took memory that it needed.
_OF_COMPANY = ("out_of_memory", "crash")


@dataclass(frozen=True)
class _Ahead:
    """A candidate that compiles, within `limits`, and why it may take no longer; `alone` if nothing runs beside it."""

    claim: Claim
    half: Packing | Compiling
    limits: Limits
    bound: str
    lane: int
    alone: bool


@dataclass(frozen=True)
class _Ready:
    """A candidate that can be measured, `since` when after the run's begin: what was compiled for it, if anything."""

    claim: Claim
    since: float
    half: Packing | Compiling | None = None
    made: Packed | CompiledAhead | None = None


@dataclass(frozen=True)
class _Timed:
    """The candidate that is measured, and why it may take no longer."""

    ready: _Ready
    errand: Errand[Measurement]
    bound: str


class SideBySide:
    """The search on a runner with several lanes.

    As many candidates compile as there are lanes, while one is measured, and one may wait for that: nothing is asked
    for long before its answer could matter. Candidates whose compiler times variants are compiled where they are
    measured, as are those that would gain nothing by another process.
    """

    def __init__(self, bench: Bench, space: Space, archive: Archive, wanted: Wanted) -> None:
        self._bench, self._space, self._archive, self._wanted = bench, space, archive, wanted
        self._lanes = bench.runner.lanes
        self._ahead: list[_Ahead] = []
        self._ready: deque[_Ready] = deque()
        self._timed: _Timed | None = None

    def run(self) -> str:
        """Search until there is a reason to stop, and nothing is under way any more. Leaves nothing running."""
        try:
            while True:
                reason = self._begin_more()
                self._measure_next()
                if not self._pending():
                    if self._waits_for_others():
                        continue
                    return reason
                self._bench.listener.on_lanes(self._in_words())
                self._await_one()
        except BaseException:
            for pending in self._pending():
                pending.cancel()
            raise

    def _waits_for_others(self) -> bool:
        return waits_for(self._bench, self._archive, search_time_s(self._bench, self._archive.trials(), ()))

    def _pending(self) -> list[PendingReply]:
        timed = [self._timed.errand.pending] if self._timed else []
        return [*timed, *(ahead.half.errand.pending for ahead in self._ahead)]

    def _begin_more(self) -> str:
        """Begin what is wanted, while there is room; the reason if nothing is."""
        while len(self._ahead) < self._lanes and len(self._archive.claims) < self._lanes + _BEYOND_COMPILING:
            claim = self._wanted.next()
            if isinstance(claim, str):
                return claim
            if claim is not None:
                self._begin(claim)
        return ""

    def _begin(self, claim: Claim) -> None:
        known = self._archive.trials()
        recalled = self._archive.recalled(claim.plan.key)
        if recalled is not None:
            self._conclude(claim, recalled.outcome, "", recalled.finals)
        elif compiles_ahead(claim.plan, known, self._lanes):
            limits, bound = allowance(self._bench, known, claim.plan)
            # Compiling takes longer beside others; at most as many times longer as there are of them.
            compile_s, memory_bytes = limits.compile_s * self._lanes, limits.memory_bytes // self._lanes
            self._compile(claim, replace(limits, compile_s=compile_s, memory_bytes=memory_bytes), bound)
        elif claim.plan.is_eager:  # soon known, and it may tell what is not worth compiling
            self._ready.appendleft(_Ready(claim, self._bench.ledger.elapsed_s))
        else:
            self._ready.append(_Ready(claim, self._bench.ledger.elapsed_s))

    def _compile(self, claim: Claim, limits: Limits, bound: str, *, alone: bool = False) -> None:
        label = self._space.label(claim.candidate)
        self._bench.listener.on_task(label)
        half: Packing | Compiling
        if is_loaded(claim.plan):
            half = begin_packing(self._bench, label, claim.plan, limits, alone=alone)
        else:
            half = begin_compiling(self._bench, claim.plan, limits, alone=alone)
        lane = 0 if alone else min(set(range(1, self._lanes + 1)) - {ahead.lane for ahead in self._ahead})
        self._ahead.append(_Ahead(claim, half, limits, bound, lane, alone))

    def _measure_next(self) -> None:
        """Have the next one measured that is ready, if there is time, and nothing else is."""
        while self._ready and self._timed is None:
            ready = self._ready.popleft()
            known, plan = self._archive.trials(), ready.claim.plan
            label = self._space.label(ready.claim.candidate)
            limits, bound = allowance(self._bench, known, plan)
            if limits.total_s <= _LEAST_S:
                self._bench.ledger.decide("skipped", label, "it was compiled, and no time was left to measure it")
                drop(self._bench, plan)
                self._archive.abandon(ready.claim.number)
                continue
            self._bench.listener.on_task(label)
            task = task_of(self._bench, known, ready.claim)
            if ready.half is None:
                errand = self._bench.submit(task, limits, Measurement, cache=plan.key)
            else:
                errand = ready.half.measure(task, replace(limits, compile_s=0.0))
            self._timed = _Timed(ready, errand, bound)

    def _await_one(self) -> None:
        done = self._bench.runner.first_done(self._pending())
        if self._timed is not None and self._timed.errand.pending is done:
            timed, self._timed = self._timed, None
            measured = timed.errand.reply()
            self._note(timed.ready.claim, done, "measuring", since=timed.ready.since, measured=measured)
            self._conclude(timed.ready.claim, _completed(timed.ready, measured), timed.bound)
            return
        ahead = next(ahead for ahead in self._ahead if ahead.half.errand.pending is done)
        self._ahead.remove(ahead)
        made = ahead.half.finish()
        self._note(ahead.claim, done, "compiling", lane=ahead.lane)
        if not isinstance(made, Failure):
            self._ready.append(_Ready(ahead.claim, self._bench.ledger.elapsed_s, ahead.half, made))
        elif made.kind in _OF_COMPANY and not ahead.alone:
            self._once_more_alone(ahead, made)
        else:
            self._conclude(ahead.claim, made, _bound(ahead, made))

    def _once_more_alone(self, ahead: _Ahead, failure: Failure) -> None:
        """What others may have brought about is no verdict: they shared the memory."""
        label = self._space.label(ahead.claim.candidate)
        self._bench.ledger.decide("noted", label, f"{failure.message}, beside others; it is compiled once more, alone")
        self._bench.runner.forget(ahead.claim.plan.key)
        limits, bound = allowance(self._bench, self._archive.trials(), ahead.claim.plan)
        self._compile(ahead.claim, limits, bound, alone=True)

    def _in_words(self) -> tuple[str, ...]:
        """What every lane does, for whoever watches."""
        label = self._space.label
        measured = [f"measuring {label(self._timed.ready.claim.candidate)}"] if self._timed else []
        compiled = [f"compiling {label(ahead.claim.candidate)}" for ahead in self._ahead]
        return *measured, *compiled, *(f"{label(ready.claim.candidate)} waits to be measured" for ready in self._ready)

    def _note(
        self,
        claim: Claim,
        pending: PendingReply,
        doing: Literal["compiling", "measuring"],
        *,
        lane: int = 0,
        since: float | None = None,
        measured: Measurement | Failure | None = None,
    ) -> None:
        """Write down what a lane has done; `since` when it might have begun, if not at once."""
        ledger = self._bench.ledger
        began, ended = map(ledger.since_begin, pending.span_s)
        contamination = measured.contamination if isinstance(measured, Measurement) else None
        entry = LaneEntry(
            lane=lane,
            label=self._space.label(claim.candidate),
            doing=doing,
            began_s=round(began, 2),
            ended_s=round(ended, 2),
            waited_s=round(max(0.0, began - since), 2) if since is not None else 0.0,
            paused_s=round(sum(until - from_ for from_, until in pending.pauses_s), 2),
            noisy=contamination is not None and contamination.noisy,
            throttled=contamination.throttled if contamination else "",
        )
        ledger.lanes.append(entry)

    def _conclude(
        self, claim: Claim, outcome: Measurement | Failure, bound: str, finals: tuple[Measurement, ...] = ()
    ) -> Trial:
        return conclude(self._bench, self._space, self._archive, claim, outcome, bound=bound, finals=finals)


def compiles_ahead(plan: Plan, known: Sequence[Trial], lanes: int) -> bool:
    """Whether a plan is compiled by another process than the one that measures it, side by side with others.

    What is loaded always is. What compiles in its own process then starts from a cache, which takes time, too; so there
    it is done if compiling took long enough so far that it pays.
    """
    kind = kind_of(plan)
    if kind.times_variants(plan):
        return False
    if is_loaded(plan):
        return True
    alike = [trial.measurement for trial in known if trial.plan.runtime == plan.runtime and trial.measurement]
    if kind.compiles is None or not alike:
        return False
    cold_s = median(measured.startup.compile_s for measured in alike)
    again_s = _START_S + median(measured.phases_s.get("load", 0.0) for measured in alike) + kind.warm_s(cold_s)
    return again_s < cold_s * (1 - 1 / lanes)


def _completed(ready: _Ready, measured: Measurement | Failure) -> Measurement | Failure:
    if isinstance(ready.half, Packing) and isinstance(ready.made, Packed):
        return ready.half.completed(ready.made, measured)
    if isinstance(ready.half, Compiling) and isinstance(ready.made, CompiledAhead):
        return ready.half.completed(ready.made, measured)
    return measured


def _bound(ahead: _Ahead, failure: Failure) -> str:
    """Why compiling was ended, if it was: it took too long itself, or the time for all was over."""
    if failure.phases_s.get("compile", 0.0) >= ahead.limits.compile_s:
        return ahead.bound
    return f"the {format_duration(ahead.limits.total_s)} left for the search ended while it compiled"
