"""What every step of a run needs, and the few questions that all of them ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from autocompile.core.environment import Environment
from autocompile.core.errors import BudgetTooSmall
from autocompile.core.goal import Goal
from autocompile.core.job import Acceptance, Timing, TrialTask
from autocompile.core.plan import Plan
from autocompile.core.progress import Listener
from autocompile.core.runner import Runner
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.core.workload import Workload
from autocompile.host import available_memory
from autocompile.search.judge import contender
from autocompile.search.ledger import Ledger
from autocompile.search.spread import spread_of
from autocompile.search.strategy import Strategy

_MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Settings:
    """What the user asked for; `storage` is an Optuna URL, or None to keep the study in memory."""

    goal: Goal
    strategy: Strategy
    seed: int
    storage: str | None


@dataclass(frozen=True)
class Bench:
    """The workload, where it runs, what it may cost, who listens; `reference` is where the profile leaves it.

    `metric` is where the user's metric lies pickled, or ""; `artifact` is where the winner is packed.
    """

    workload: Workload
    environment: Environment
    runner: Runner
    ledger: Ledger
    listener: Listener
    settings: Settings
    reference: Path
    metric: str = ""
    artifact: Path = Path()

    def trial_task(self, plan: Plan, timing: Timing, seed: int) -> TrialTask:
        """What a child is asked, to measure a plan."""
        goal = self.settings.goal
        return TrialTask(
            workload=self.workload,
            plan=plan,
            reference=str(self.reference),
            timing=timing,
            acceptance=Acceptance(goal.tolerance_for(plan.autocast), self.metric, goal.max_drop),
            seed=self.settings.seed + seed,
        )

    def memory_limit(self) -> int:
        """On a CPU, most of what is free now; a GPU's driver bounds itself, so 0."""
        return int(available_memory() * _MEMORY_SHARE) if self.workload.device_type == "cpu" else 0

    def scale(self, trials: Sequence[Trial]) -> tuple[float, float]:
        """The run's one baseline latency in seconds (the median over all processes), and the calls to amortize over."""
        baseline_s = median(m.baseline.mean_ms for t in trials for m in t.measurements) / 1e3
        return baseline_s, self.settings.goal.calls_for(baseline_s)

    def score(self, trial: Trial, trials: Sequence[Trial]) -> float | None:
        """Amortized seconds a call, or None for a failure."""
        if trial.measurement is None:
            return None
        baseline_s, calls = self.scale(trials)
        return contender(trial, baseline_s, spread_of(trials)).per_call_s(calls).value

    def too_small(self) -> BudgetTooSmall:
        """The error to raise when the baseline did not fit."""
        return BudgetTooSmall(
            f"{format_duration(self.ledger.budget_s)} ended before the baseline was measured",
            where="budget",
            remedy=f"give at least {format_duration(max(60.0, 3 * self.ledger.elapsed_s))}",
        )
