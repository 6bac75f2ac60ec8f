"""What every step of a run needs, and the few questions that all of them ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from autocompile.core.environment import Environment
from autocompile.core.errors import BudgetTooSmall
from autocompile.core.goal import Goal
from autocompile.core.job import Acceptance, Limits, Task, Timing, TrialTask
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.progress import Listener
from autocompile.core.runner import Runner
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.core.words import words_of
from autocompile.core.workload import Workload
from autocompile.host import available_memory
from autocompile.search.errand import Errand, ReplyT, submit
from autocompile.search.judge.contender import Contender, baseline_seconds, contenders_of
from autocompile.search.judge.scatter import scatter_of
from autocompile.search.judge.verdict import Verdict, judge
from autocompile.search.ledger import Ledger
from autocompile.search.strategy import Strategy

_MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Standing:
    """What a search makes small, in seconds a call, and by constraint how far it is beyond it (at most 0 is not)."""

    score_s: float
    excess: dict[str, float]


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

    @property
    def packages(self) -> Path:
        """Where what trials load is packed, each plan in a directory of its own."""
        return self.artifact.with_name(f"{self.artifact.name}-packages")

    def trial_task(self, plan: Plan, timing: Timing, seed: int, *, learning_s: float = 0.0) -> TrialTask:
        """What a child is asked, to measure a plan; `learning_s`: how long it trains or generates beside eager."""
        goal = self.settings.goal
        return TrialTask(
            workload=self.workload,
            plan=plan,
            reference=str(self.reference),
            timing=replace(timing, calls=goal.calls_to_time, in_a_row=not goal.is_of_single_calls),
            acceptance=self.acceptance(plan),
            seed=self.settings.seed + seed,
            learning_s=learning_s if self.workload.training or self.workload.generation else 0.0,
        )

    @property
    def learning_s(self) -> float:
        """For how long a finalist may train or generate beside eager: all of them for half of what finals have."""
        strategy = self.settings.strategy
        return strategy.stages.finals * self.ledger.budget_s / 2 / (strategy.finals.candidates + 1)

    def acceptance(self, plan: Plan) -> Acceptance:
        """When a plan's outputs are correct."""
        goal = self.settings.goal
        return Acceptance(goal.tolerance_for(plan.precision), self.metric, goal.max_drop)

    def submit(
        self,
        task: Task,
        limits: Limits,
        expected: type[ReplyT],
        *,
        cache: str,
        alone: bool = False,
        machine: int = 0,
    ) -> Errand[ReplyT]:
        """Have a task run; its seconds are this run's. `alone`: beside no other, whatever it does. `machine`: where.

        Raises what `Runner.submit` raises.
        """
        charge = self.ledger.charge
        return submit(self.runner, task, limits, expected, cache=cache, charge=charge, alone=alone, machine=machine)

    def reply_to(self, task: Task, limits: Limits, expected: type[ReplyT], *, cache: str) -> ReplyT | Failure:
        """Run a task to its end. Raises what `PendingReply.answer` raises."""
        return self.submit(task, limits, expected, cache=cache).reply()

    def memory_limit(self) -> int:
        """On a CPU, most of what is free now; a GPU's driver bounds itself, so 0."""
        return int(available_memory() * _MEMORY_SHARE) if self.workload.device_type == "cpu" else 0

    def calls(self, trials: Sequence[Trial]) -> float:
        """How many calls a process makes."""
        return self.settings.goal.calls_for(baseline_seconds(trials))

    def spread_over(self, trials: Sequence[Trial]) -> float:
        """Over how many calls start-up is spread when candidates are ranked."""
        return self.settings.goal.spread_over(self.calls(trials))

    def contenders(self, trials: Sequence[Trial]) -> list[Contender]:
        """All that was measured, to be compared; see `contenders_of`."""
        return contenders_of(trials, self.settings.goal)

    def verdict(self, trials: Sequence[Trial], goal: Goal | None = None) -> Verdict:
        """Who is best of these trials, which must hold the measured baseline, for this goal or the run's own."""
        contenders = contenders_of(trials, goal or self.settings.goal)
        margin = scatter_of([t for t in trials if t.measurement]).margin(max(c.processes for c in contenders))
        return judge(contenders, self.spread_over(trials), margin, words_of(self.workload.kind))

    def pass_seconds(self, trials: Sequence[Trial], plan: Plan) -> float:
        """What one call of every sample takes the baseline, with as many samples as the plan has in a call."""
        measured = [trial for trial in trials if trial.measurement]
        if not measured:
            return 0.0
        factors = [trial.batch_factor / trial.plan.batch for trial in measured if trial.plan.batch]
        factor = plan.batch * (factors[0] if factors else 1.0) if plan.batch else 1.0
        return baseline_seconds(measured) * self.workload.sample_count * factor

    def best(self, trials: Sequence[Trial], *, of_other_batches: bool | None = None) -> Contender | None:
        """The one to beat: the lowest that keeps every constraint, if there is any; with the given batch, or others."""
        calls = self.spread_over(trials) if any(trial.measurement for trial in trials) else 1.0
        batches = {trial.number: bool(trial.plan.batch) for trial in trials}
        feasible = [
            c for c in self.contenders(trials) if c.is_feasible and of_other_batches in (None, batches[c.number])
        ]
        return min(feasible, key=lambda c: c.per_call_s(calls).value, default=None)

    def standing(self, trial: Trial, trials: Sequence[Trial]) -> Standing | None:
        """What the search is told of one of these trials, None of one that failed."""
        own = next((c for c in self.contenders(trials) if c.number == trial.number), None)
        return Standing(own.per_call_s(self.spread_over(trials)).value, own.excess) if own else None

    def too_small(self) -> BudgetTooSmall:
        """The error to raise when the baseline did not fit."""
        twice = format_duration(max(60.0, 2 * self.ledger.budget_s))
        return BudgetTooSmall(
            f"{format_duration(self.ledger.budget_s)} ended before the baseline was measured",
            where="budget",
            remedy=f"give twice as much time, {twice}, or smaller inputs",
        )
