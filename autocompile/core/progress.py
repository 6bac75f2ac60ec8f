"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autocompile.core.decision import Decision
from autocompile.core.trial import Trial
from autocompile.core.workload import Workload


class Listener(Protocol):
    """Hears of a run's progress. Called from the deciding process, between and around children only.

    While a child is timing nothing is called, so that whoever draws a screen stays still meanwhile.
    """

    def on_workload(self, workload: Workload) -> None:
        """It is known what is tuned, before anything is measured of it."""

    def on_stage(self, stage: str) -> None:
        """A new stage begins: toolchain, profile, search, finals."""

    def on_task(self, label: str) -> None:
        """A child starts on this."""

    def on_phase(self, phase: str) -> None:
        """The child now loads, compiles, verifies, warms up or times."""

    def on_lanes(self, lanes: Sequence[str]) -> None:
        """What several lanes do now, each in words."""

    def on_trial(self, trial: Trial) -> None:
        """A trial has ended."""

    def on_decision(self, decision: Decision) -> None:
        """The journal has a new entry."""

    def on_notice(self, notice: str) -> None:
        """Something that the user should know before the budget is spent."""


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
