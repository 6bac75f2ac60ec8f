"""Trials answered from a recording, on a clock that only they move: searches compared in seconds, without noise.

The idea of replaying exhaustively recorded spaces to judge search strategies is Kernel Tuner's simulation mode
(Schoonhoven et al., "Benchmarking optimization algorithms for auto-tuning GPU kernels", 2022).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autocompile.core.environment import Environment
from autocompile.core.errors import RunnerError
from autocompile.core.job import Limits, ProfileTask, Reply, Task, ToolchainTask, TrialTask
from autocompile.core.outcome import Failure, Outcome, Toolchain
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.runner import Runner
from autocompile.core.serde import Record, from_json, to_json
from autocompile.core.workload import Workload

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


class VirtualClock:
    """Seconds that pass only when a replayed task spends them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class ReplayRunner(Runner):
    """Answers from a recording. `timeline` is when each trial ended, on the clock, and its plan's key."""

    recording: Recording
    clock: VirtualClock
    timeline: list[tuple[float, str]] = field(default_factory=list)

    def run(self, task: Task, limits: Limits, *, cache: str) -> Reply:  # noqa: ARG002  what was recorded had its own
        """What was recorded, ended at the limits if it took longer. Raises RunnerError for what was not recorded."""
        if isinstance(task, ToolchainTask):
            return self._after(self.recording.about.toolchain)
        if isinstance(task, ProfileTask):
            return self._after(self.recording.about.profile)
        if not isinstance(task, TrialTask) or task.plan.key not in self.recording.outcomes:
            raise RunnerError(f"there is no recording of {type(task).__name__} {getattr(task, 'plan', '')}")
        reply = self._within(self.recording.outcomes[task.plan.key], limits)
        self.timeline.append((self.clock.now, task.plan.key))
        return reply

    def forget(self, cache: str) -> None:
        """There is no cache to forget."""

    def _after(self, reply: Toolchain | Profile | Outcome) -> Toolchain | Profile | Outcome:
        self.clock.now += sum(reply.phases_s.values())
        return reply

    def _within(self, outcome: Outcome, limits: Limits) -> Reply:
        before = {name: s for name, s in outcome.phases_s.items() if name in _BEFORE_COMPILING}
        if 0 < limits.compile_s < outcome.phases_s.get("compile", 0.0):
            return self._after(_ended("compile", {**before, "compile": limits.compile_s}))
        if sum(outcome.phases_s.values()) > limits.total_s:
            return self._after(_ended("timing", {"timing": limits.total_s}))
        return self._after(outcome)


def _ended(stage: str, spent: dict[str, float]) -> Failure:
    return Failure(stage=stage, kind="timeout", message="ended at its limit", phases_s=spent)


def to_lines(record: Recorded | RecordedTrial) -> str:
    """A record as a line of a recording."""
    return to_json(record).decode() + "\n"
