"""Search with several candidates at once: they compile side by side, and each machine measures one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace as changed
from statistics import median

from msgspec.structs import replace

from autocompile.core.errors import MachineLost
from autocompile.core.job import Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.runner import PendingReply
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of
from autocompile.search.allowance import allowance
from autocompile.search.archive import Archive, Claim
from autocompile.search.attempt import conclude, task_of
from autocompile.search.judge.contender import baseline_seconds
from autocompile.search.machines import Machines
from autocompile.search.others import waits_for
from autocompile.search.packages import Packing, begin_packing, drop, is_loaded
from autocompile.search.precompiled import Compiling, begin_compiling
from autocompile.search.run import Bench
from autocompile.search.under_way import Ahead, Ready, Timed, lane_entry, words
from autocompile.search.wanted import Wanted, search_time_s
from autocompile.space.space import Space

# The start of a child process, in seconds.
_START_S = 1.0
# A measurement is not started with less time than this, in seconds.
_LEAST_S = 1.0
# Failures that may have happened only because other children used the memory.
_OF_COMPANY = ("out_of_memory", "crash")


class SideBySide:
    """The search on a runner with several lanes, or on several machines.

    Each machine compiles as many candidates as it has lanes, while it measures another one, and one more may wait to be
    measured: no candidate is chosen long before its result could matter. Candidates whose compiler times variants are
    compiled by the process that measures them, as are those for which a separate process would save no time. A
    candidate is measured where it was compiled. If that machine is unfit for measuring and the compiled program can be
    moved, it is measured on the first machine. When a machine is lost, its candidates are tried on another one.
    """

    def __init__(self, bench: Bench, space: Space, archive: Archive, wanted: Wanted) -> None:
        self._bench, self._space, self._archive, self._wanted = bench, space, archive, wanted
        self._machines = Machines(bench.runner.machines)
        self._again: deque[Claim] = deque()
        self._ahead: list[Ahead] = []
        self._ready: deque[Ready] = deque()
        self._timed: list[Timed] = []

    def run(self) -> str:
        """Search until there is a reason to stop and no candidate is under way. Leaves nothing running."""
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
        timed = [timed.errand.pending for timed in self._timed]
        return [*timed, *(ahead.half.errand.pending for ahead in self._ahead)]

    def _begin_more(self) -> str:
        """Begin wanted candidates while there is room; return the reason if none is wanted."""
        while (machine := self._free()) is not None:
            claim = self._again.popleft() if self._again else self._wanted.next()
            if isinstance(claim, str):
                return claim
            if claim is not None:
                self._begin(claim, machine)
        return ""

    def _free(self) -> int | None:
        compiling = [ahead.machine for ahead in self._ahead]
        ready = [ready.machine for ready in self._ready]
        return self._machines.free(compiling, [*compiling, *ready, *(timed.ready.machine for timed in self._timed)])

    def _begin(self, claim: Claim, machine: int) -> None:
        known, lanes = self._archive.trials(), self._machines.lanes(machine)
        recalled = self._archive.recalled(claim.plan.key)
        if recalled is not None:
            self._conclude(claim, recalled.outcome, "", recalled.finals)
            return
        if not self._machines.measures(machine) and not is_loaded(claim.plan):
            machine = 0  # only packed programs can be measured elsewhere
        if compiles_ahead(claim.plan, known, lanes):
            limits, bound = allowance(self._bench, known, claim.plan)
            # Compiling takes longer next to other compilations, at most by a factor of their number.
            compile_s, memory_bytes = limits.compile_s * lanes, limits.memory_bytes // lanes
            self._compile(claim, machine, replace(limits, compile_s=compile_s, memory_bytes=memory_bytes), bound)
        elif claim.plan.is_eager:  # short, and its result may save compiling others
            self._ready.appendleft(Ready(claim, machine, self._bench.ledger.elapsed_s))
        else:
            self._ready.append(Ready(claim, machine, self._bench.ledger.elapsed_s))

    def _compile(self, claim: Claim, machine: int, limits: Limits, bound: str, *, alone: bool = False) -> None:
        label = self._space.label(claim.candidate)
        self._bench.listener.on_task(label)
        half: Packing | Compiling
        if is_loaded(claim.plan):
            half = begin_packing(self._bench, label, claim.plan, limits, alone=alone, machine=machine)
        else:
            half = begin_compiling(self._bench, claim.plan, limits, alone=alone, machine=machine)
        taken = {ahead.lane for ahead in self._ahead if ahead.machine == machine}
        lane = 0 if alone else next(number for number in range(1, len(self._ahead) + 2) if number not in taken)
        self._ahead.append(Ahead(claim, machine, half, limits, bound, lane, alone))

    def _measure_next(self) -> None:
        """On each machine, measure the next candidate that is ready, if no other is measured there and time is left."""
        for ready in tuple(self._ready):
            machine = ready.machine if self._machines.measures(ready.machine) else 0
            if machine in (timed.ready.machine for timed in self._timed):
                continue
            self._ready.remove(ready)
            self._measure(ready if ready.machine == machine else changed(ready, machine=machine))

    def _measure(self, ready: Ready) -> None:
        known, plan = self._archive.trials(), ready.claim.plan
        label = self._space.label(ready.claim.candidate)
        limits, bound = allowance(self._bench, known, plan)
        if limits.total_s <= _LEAST_S:
            self._bench.ledger.decide("skipped", label, "it was compiled, but no time was left to measure it")
            drop(self._bench, plan)
            self._archive.abandon(ready.claim.number)
            return
        self._bench.listener.on_task(label)
        task = task_of(self._bench, known, ready.claim)
        if ready.half is None:
            errand = self._bench.submit(task, limits, Measurement, cache=plan.key, machine=ready.machine)
        else:
            errand = ready.half.measure(task, replace(limits, compile_s=0.0), ready.machine)
        self._timed.append(Timed(ready, errand, bound))

    def _await_one(self) -> None:
        done = self._bench.runner.first_done(self._pending())
        timed = next((timed for timed in self._timed if timed.errand.pending is done), None)
        ahead = next((ahead for ahead in self._ahead if ahead.half.errand.pending is done), None)
        try:
            if timed is not None:
                self._measured(timed)
            elif ahead is not None:
                self._compiled(ahead)
        except MachineLost as lost:
            self._lose(timed.ready.machine if timed else ahead.machine if ahead else 0, str(lost))

    def _measured(self, timed: Timed) -> None:
        measured = timed.errand.reply()
        self._timed.remove(timed)
        claim, machine = timed.ready.claim, timed.ready.machine
        self._note(claim, machine, timed, measured)
        self._conclude(claim, timed.ready.completed(measured), timed.bound)
        unfit = self._machines.judge(machine, measured, 1e3 * baseline_seconds(self._archive.trials()))
        if unfit:
            why = f"{unfit}: it only compiles from now on"
            self._bench.ledger.decide("narrowed", self._machines.names[machine], why)

    def _compiled(self, ahead: Ahead) -> None:
        made = ahead.half.finish()
        self._ahead.remove(ahead)
        self._note(ahead.claim, ahead.machine, ahead)
        if not isinstance(made, Failure):
            self._ready.append(Ready(ahead.claim, ahead.machine, self._bench.ledger.elapsed_s, ahead.half, made))
        elif made.kind in _OF_COMPANY and not ahead.alone:
            self._once_more_alone(ahead, made)
        else:
            self._conclude(ahead.claim, made, _bound(ahead, made))

    def _lose(self, machine: int, why: str) -> None:
        """Go on without a machine. Its candidates are tried again, except those that can be measured elsewhere."""
        self._machines.lose(machine)
        name = self._machines.names[machine]
        told = f"{why.removeprefix(f'{name}: ')}; its candidates are tried elsewhere"
        self._bench.ledger.decide("noted", name, told)
        there = [
            *(timed.ready.claim for timed in self._timed if timed.ready.machine == machine),
            *(ahead.claim for ahead in self._ahead if ahead.machine == machine),
            *(ready.claim for ready in self._ready if ready.machine == machine and not isinstance(ready.half, Packing)),
        ]
        self._timed = [timed for timed in self._timed if timed.ready.machine != machine]
        self._ahead = [ahead for ahead in self._ahead if ahead.machine != machine]
        self._ready = deque(ready for ready in self._ready if ready.claim not in there)
        self._again.extend(there)

    def _once_more_alone(self, ahead: Ahead, failure: Failure) -> None:
        """Compile a candidate again, alone: other children shared the memory and may have caused the failure."""
        label = self._space.label(ahead.claim.candidate)
        self._bench.ledger.decide("noted", label, f"{failure.message}, while others ran; it is compiled again, alone")
        self._bench.runner.forget(ahead.claim.plan.key)
        limits, bound = allowance(self._bench, self._archive.trials(), ahead.claim.plan)
        self._compile(ahead.claim, ahead.machine, limits, bound, alone=True)

    def _in_words(self) -> tuple[str, ...]:
        return words(self._space.label, self._machines.names, self._timed, self._ahead, list(self._ready))

    def _note(
        self, claim: Claim, machine: int, done: Ahead | Timed, measured: Measurement | Failure | None = None
    ) -> None:
        label, name = self._space.label(claim.candidate), self._machines.names[machine]
        self._bench.ledger.lanes.append(lane_entry(self._bench.ledger, label, name, done, measured))

    def _conclude(
        self, claim: Claim, outcome: Measurement | Failure, bound: str, finals: tuple[Measurement, ...] = ()
    ) -> Trial:
        return conclude(self._bench, self._space, self._archive, claim, outcome, bound=bound, finals=finals)


def compiles_ahead(plan: Plan, known: Sequence[Trial], lanes: int) -> bool:
    """Whether a plan is compiled in a process of its own, side by side with others, before another process measures it.

    Plans that are loaded always are. For a plan that compiles in its own process, the measuring process then starts
    from a cache, which takes time, too. Such a plan is compiled ahead if compiling has taken long enough so far to save
    time.
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


def _bound(ahead: Ahead, failure: Failure) -> str:
    """Return why compiling was ended: it took too long itself, or the time of the whole search was over."""
    if failure.phases_s.get("compile", 0.0) >= ahead.limits.compile_s:
        return ahead.bound
    return f"compiling took longer than the {format_duration(ahead.limits.total_s)} that were left for it"
