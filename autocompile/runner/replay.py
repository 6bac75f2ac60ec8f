"""Answer trials from a recording, on a virtual clock, so that searches can be compared in seconds and without noise.

The idea of replaying exhaustively recorded spaces to judge search strategies comes from Kernel Tuner's simulation mode
(Schoonhoven et al., "Benchmarking optimization algorithms for auto-tuning GPU kernels", 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autocompile.core.environment import Environment
from autocompile.core.errors import RunnerError
from autocompile.core.job import (
    CompiledAhead,
    CompileTask,
    FreshStart,
    FreshTask,
    Limits,
    Packed,
    PackTask,
    ProfileTask,
    Reply,
    Task,
    ToolchainTask,
    TrialTask,
)
from autocompile.core.manifest import Requirements
from autocompile.core.outcome import Failure, Outcome, Toolchain
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.runner import MachineEntry, PendingReply
from autocompile.core.serde import Record, from_json, to_json
from autocompile.core.workload import Workload
from autocompile.runner.simulated import SimulatedLanes, SimulatedTask, VirtualClock
from autocompile.runtime.catalogue import kind_of, kinds, serving_of

_BEFORE_COMPILING = ("start", "load", "build")


class Recorded(Record, tag="recorded", frozen=True):
    """The measurements made before any trial. The workload has no directories, as a replay does not need them."""

    workload: Workload
    environment: Environment
    toolchain: Toolchain
    profile: Profile


class RecordedTrial(Record, tag="trial", frozen=True):
    """One plan and the outcome of its trial."""

    plan: Plan
    outcome: Outcome


@dataclass(frozen=True)
class Recording:
    """All recorded trials of one workload on one machine.

    The file has one JSON record per line. The first is a `Recorded`, the others are `RecordedTrial`.
    """

    about: Recorded
    outcomes: dict[str, Outcome]
    plans: tuple[Plan, ...] = ()

    @staticmethod
    def read(path: Path) -> Recording:
        """Read a recording from a file. Raises msgspec.ValidationError if the file has another version."""
        first, *rest = path.read_text().splitlines()
        trials = [from_json(line, RecordedTrial) for line in rest]
        outcomes = {trial.plan.key: trial.outcome for trial in trials}
        return Recording(from_json(first, Recorded), outcomes, tuple(trial.plan for trial in trials))


class ReplayRunner:
    """A runner that answers from a recording, in `lanes` lanes.

    `timeline` lists when each trial ended and its plan's key, in the order of time.
    """

    def __init__(self, recording: Recording, clock: VirtualClock, lanes: int = 1) -> None:
        self.recording = recording
        self.clock = clock
        self.timeline: list[tuple[float, str]] = []
        self._lanes = SimulatedLanes(lanes, clock, self._note)
        self._filled: set[str] = set()

    @property
    def lanes(self) -> int:
        """The number of tasks that may run at the same time."""
        return self._lanes.count

    @property
    def machines(self) -> tuple[MachineEntry]:
        """A single machine."""
        return (MachineEntry("", self.lanes),)

    def submit(
        self,
        task: Task,
        limits: Limits,
        *,
        cache: str,
        exclusive: bool,
        machine: int = 0,  # noqa: ARG002
    ) -> SimulatedTask:
        """Return the recorded reply, or a timeout if it exceeds the limits. Raises RunnerError if none was recorded."""
        reply, plan_key = self._recorded(task, limits, cache)
        pending = SimulatedTask(reply, sum(reply.phases_s.values()), exclusive, plan_key, self._lanes)
        self._lanes.add(pending)
        return pending

    def first_done(self, pending: Sequence[PendingReply]) -> PendingReply:
        """See `core.runner.Runner`. The virtual clock advances until then."""
        return self._lanes.wait_for([task for task in pending if isinstance(task, SimulatedTask)])

    def forget(self, cache: str) -> None:
        """Do nothing: a replay has no caches."""

    def _recorded(self, task: Task, limits: Limits, cache: str) -> tuple[Reply, str]:
        """Return the recorded reply and, for a trial, its plan's key (else "")."""
        if isinstance(task, ToolchainTask):
            return self._toolchain(), ""
        if isinstance(task, ProfileTask):
            return self.recording.about.profile, ""
        of_a_plan = TrialTask | CompileTask | PackTask | FreshTask
        if not isinstance(task, of_a_plan) or task.plan.key not in self.recording.outcomes:
            raise RunnerError(f"there is no recording of {type(task).__name__} {getattr(task, 'plan', '')}")
        outcome = self.recording.outcomes[task.plan.key]
        if isinstance(task, PackTask):
            return _packing(task, outcome, limits), ""
        if isinstance(task, FreshTask):
            return _start_of(task, outcome), ""
        if isinstance(task, CompileTask):
            self._filled.add(cache)
            return _ahead(outcome, limits), ""
        if cache in self._filled:
            outcome = _from_cache(task.plan, outcome)
        return _within(_as_loaded(outcome) if task.artifact else outcome, limits), task.plan.key

    def _toolchain(self) -> Toolchain:
        """Return the recorded toolchain. Runtimes without a recorded trial are reported as missing."""
        recorded = {plan.runtime for plan in self.recording.plans}
        missing = {kind.name: "no trial of it was recorded" for kind in kinds() if kind.name not in recorded}
        return msgspec.structs.replace(self.recording.about.toolchain, missing=missing)

    def _note(self, task: SimulatedTask) -> None:
        if task.name:
            self.timeline.append((self.clock.now, task.name))


def _packing(task: PackTask, outcome: Outcome, limits: Limits) -> Packed | Failure:
    """Return the result of packing as recorded in the plan's trial. No other packing was recorded."""
    if isinstance(outcome, Failure):
        return outcome
    if task.serving.start != "load":
        return Failure(stage="pack", kind="unsupported", message="no packing was recorded")
    took_s = outcome.startup.pack_s
    if took_s > min(limits.total_s, limits.compile_s or limits.total_s):
        return _ended("compile", {"compile": min(limits.total_s, limits.compile_s or limits.total_s)})
    Path(task.directory).mkdir(parents=True)
    here = Requirements(torch="", architecture="", instructions=(), capability="")
    return Packed((), here, phases_s={"compile": took_s})


def _start_of(task: FreshTask, outcome: Outcome) -> FreshStart | Failure:
    """Return a fresh start as the plan's trial recorded it. Its time is part of that trial, so it adds none."""
    if isinstance(outcome, Failure):
        return outcome
    load_s, first_pass_s = outcome.startup.build_s, outcome.startup.compile_s
    return FreshStart(0.0, 0.0, load_s, first_pass_s, 0.0, serving_of(task.plan), cache_misses=0)


def _ahead(outcome: Outcome, limits: Limits) -> CompiledAhead | Failure:
    """Return the result of compiling alone. A plan whose trial failed in a later stage does compile."""
    seconds = {name: s for name, s in outcome.phases_s.items() if name in (*_BEFORE_COMPILING, "compile")}
    if isinstance(outcome, Failure) and outcome.stage in seconds:
        return outcome
    within = _within(msgspec.structs.replace(outcome, phases_s=seconds), limits)
    ended = within if isinstance(within, Failure) and within.kind == "timeout" else None
    return ended or CompiledAhead(0.0, seconds)


def _from_cache(plan: Plan, outcome: Outcome) -> Outcome:
    """Return the outcome of a trial that finds the code that another process compiled in the cache."""
    cold_s = outcome.phases_s.get("compile", 0.0)
    return msgspec.structs.replace(outcome, phases_s={**outcome.phases_s, "compile": kind_of(plan).warm_s(cold_s)})


def _as_loaded(outcome: Outcome) -> Outcome:
    """Return the outcome of a trial of an artifact that was packed before: without the time for packing."""
    if isinstance(outcome, Failure):
        return outcome
    compile_s = max(0.0, outcome.phases_s.get("compile", 0.0) - outcome.startup.pack_s)
    return msgspec.structs.replace(outcome, phases_s={**outcome.phases_s, "compile": compile_s})


def _within(outcome: Outcome, limits: Limits) -> Outcome:
    """Return the outcome, or a Failure of kind `timeout` if it took longer than the limits."""
    before = {name: s for name, s in outcome.phases_s.items() if name in _BEFORE_COMPILING}
    if 0 < limits.compile_s < outcome.phases_s.get("compile", 0.0):
        return _ended("compile", {**before, "compile": limits.compile_s})
    if sum(outcome.phases_s.values()) > limits.total_s:
        return _ended("timing", {"timing": limits.total_s})
    return outcome


def _ended(stage: str, spent: dict[str, float]) -> Failure:
    return Failure(stage=stage, kind="timeout", message="ended at its limit", phases_s=spent)


def to_lines(record: Recorded | RecordedTrial) -> str:
    """Return a record as a line of a recording."""
    return to_json(record).decode() + "\n"
