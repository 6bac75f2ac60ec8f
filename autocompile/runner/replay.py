"""Trials answered from a recording, on a clock that only they move: searches compared in seconds, without noise.

The idea of replaying exhaustively recorded spaces to judge search strategies is Kernel Tuner's simulation mode
(Schoonhoven et al., "Benchmarking optimization algorithms for auto-tuning GPU kernels", 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autocompile.core.environment import Environment
from autocompile.core.errors import RunnerError
from autocompile.core.job import Limits, ProfileTask, Reply, Task, ToolchainTask, TrialTask
from autocompile.core.outcome import Failure, Outcome, Toolchain
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.runner import PendingReply
from autocompile.core.serde import Record, from_json, to_json
from autocompile.core.workload import Workload
from autocompile.runner.simulated import SimulatedLanes, SimulatedTask, VirtualClock

_BEFORE_COMPILING = ("start", "load", "build")


class Recorded(Record, tag="recorded", frozen=True):
    """What was measured before any trial. The workload is without the folders that it lay in, which no replay needs."""

    workload: Workload
    environment: Environment
    toolchain: Toolchain
    profile: Profile


class RecordedTrial(Record, tag="trial", frozen=True):
    """What became of one plan."""

    plan: Plan
    outcome: Outcome


@dataclass(frozen=True)
class Recording:
    """Everything about one workload on one machine: a file of one JSON record a line, the first a `Recorded`."""

    about: Recorded
    outcomes: dict[str, Outcome]

    @staticmethod
    def read(path: Path) -> Recording:
        """Read a file. Raises msgspec.ValidationError for one of another version."""
        first, *rest = path.read_text().splitlines()
        trials = [from_json(line, RecordedTrial) for line in rest]
        return Recording(from_json(first, Recorded), {trial.plan.key: trial.outcome for trial in trials})


class ReplayRunner:
    """Answers from a recording, in so many `lanes`. `timeline`: when each trial ended, and its plan's key, in order."""

    def __init__(self, recording: Recording, clock: VirtualClock, lanes: int = 1) -> None:
        self.recording = recording
        self.clock = clock
        self.timeline: list[tuple[float, str]] = []
        self._lanes = SimulatedLanes(lanes, clock, self._note)

    @property
    def lanes(self) -> int:
        """How many tasks may run side by side."""
        return self._lanes.count

    def submit(self, task: Task, limits: Limits, *, cache: str, exclusive: bool) -> SimulatedTask:  # noqa: ARG002  what was recorded had its own
        """What was recorded, ended at the limits if it took longer. Raises RunnerError for what was not recorded."""
        reply, plan_key = self._recorded(task, limits)
        pending = SimulatedTask(reply, sum(reply.phases_s.values()), exclusive, plan_key, self._lanes)
        self._lanes.add(pending)
        return pending

    def first_done(self, pending: Sequence[PendingReply]) -> PendingReply:
        """See `core.runner.Runner`; the clock runs until then."""
        return self._lanes.wait_for([task for task in pending if isinstance(task, SimulatedTask)])

    def forget(self, cache: str) -> None:
        """There is no cache to forget."""

    def _recorded(self, task: Task, limits: Limits) -> tuple[Reply, str]:
        """The reply, and of a trial its plan's key."""
        if isinstance(task, ToolchainTask):
            return self.recording.about.toolchain, ""
        if isinstance(task, ProfileTask):
            return self.recording.about.profile, ""
        if not isinstance(task, TrialTask) or task.plan.key not in self.recording.outcomes:
            raise RunnerError(f"there is no recording of {type(task).__name__} {getattr(task, 'plan', '')}")
        return _within(self.recording.outcomes[task.plan.key], limits), task.plan.key

    def _note(self, task: SimulatedTask) -> None:
        if task.name:
            self.timeline.append((self.clock.now, task.name))


def _within(outcome: Outcome, limits: Limits) -> Outcome:
    """What came of it within the limits."""
    before = {name: s for name, s in outcome.phases_s.items() if name in _BEFORE_COMPILING}
    if 0 < limits.compile_s < outcome.phases_s.get("compile", 0.0):
        return _ended("compile", {**before, "compile": limits.compile_s})
    if sum(outcome.phases_s.values()) > limits.total_s:
        return _ended("timing", {"timing": limits.total_s})
    return outcome


def _ended(stage: str, spent: dict[str, float]) -> Failure:
    return Failure(stage=stage, kind="timeout", message="ended at its limit", phases_s=spent)


def to_lines(record: Recorded | RecordedTrial) -> str:
    """A record as a line of a recording."""
    return to_json(record).decode() + "\n"
