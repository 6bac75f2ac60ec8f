"""The progress events of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autocompile.core.decision import Decision
from autocompile.core.trial import Trial
from autocompile.core.workload import Workload


class Listener(Protocol):
    """Receives the progress of a run. It is called in the parent process.

    It is never called while a child process is timing, so that drawing on the screen does not disturb the timing.
    """

    def on_workload(self, workload: Workload) -> None:
        """The workload is known; nothing has been measured yet."""

    def on_stage(self, stage: str) -> None:
        """A new stage begins: toolchain, profile, search, finals."""

    def on_task(self, label: str) -> None:
        """A child process starts this task."""

    def on_phase(self, phase: str) -> None:
        """The child process starts to load, compile, verify, warm up or time."""

    def on_lanes(self, lanes: Sequence[str]) -> None:
        """The activity of the lanes has changed; each is described in words."""

    def on_trial(self, trial: Trial) -> None:
        """A trial has ended."""

    def on_decision(self, decision: Decision) -> None:
        """The journal has a new entry."""

    def on_notice(self, notice: str) -> None:
        """There is something that the user should know before the budget is spent."""


class Silence:
    """A listener that does nothing."""

    def on_workload(self, workload: Workload) -> None:
        """Nothing."""

    def on_stage(self, stage: str) -> None:
        """Nothing."""

    def on_task(self, label: str) -> None:
        """Nothing."""

    def on_phase(self, phase: str) -> None:
        """Nothing."""

    def on_lanes(self, lanes: Sequence[str]) -> None:
        """Nothing."""

    def on_trial(self, trial: Trial) -> None:
        """Nothing."""

    def on_decision(self, decision: Decision) -> None:
        """Nothing."""

    def on_notice(self, notice: str) -> None:
        """Nothing."""
