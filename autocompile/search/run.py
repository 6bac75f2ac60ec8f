"""What every step of a run needs, and the questions that all steps ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from autocompile.core.candidate import Value
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
    """What a search minimizes: `score_s`, in seconds per call, and how far each constraint is exceeded.

    A constraint is met if its excess is at most 0.
    """

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
    """The workload, the environment, the runner, the budget's ledger, the listener and the settings of a run.

    `reference` is where the profile writes the reference outputs. `metric` is the path of the user's pickled metric, or
    "". `artifact` is where the winner is packed. `first` has values of a candidate that is to be tried first, if it is
    possible here.
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
    first: Mapping[str, Value] = field(default_factory=dict)

    @property
    def packages(self) -> Path:
        """The directory for programs that trials load, with a subdirectory for each plan."""
        return self.artifact.with_name(f"{self.artifact.name}-packages")

    def trial_task(self, plan: Plan, timing: Timing, seed: int, *, learning_s: float = 0.0) -> TrialTask:
        """Return the task for a child process that measures a plan.

        `learning_s`: for how long the child also trains or generates in comparison with eager.
        """
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
        """For how long a finalist may train or generate in comparison with eager.

        All finalists together get half of the time of the finals.
        """
        strategy = self.settings.strategy
        return strategy.stages.finals * self.ledger.budget_s / 2 / (strategy.finals.candidates + 1)

    def acceptance(self, plan: Plan) -> Acceptance:
        """Return the criteria by which a plan's outputs count as correct."""
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
        """Submit a task and charge its seconds to this run.

        `alone`: run it while no other task runs, whatever it does. `machine`: the number of the machine that runs it.

        Raises what `Runner.submit` raises.
        """
        charge = self.ledger.charge
        return submit(self.runner, task, limits, expected, cache=cache, charge=charge, alone=alone, machine=machine)

    def reply_to(self, task: Task, limits: Limits, expected: type[ReplyT], *, cache: str) -> ReplyT | Failure:
        """Run a task to its end. Raises what `PendingReply.answer` raises."""
        return self.submit(task, limits, expected, cache=cache).reply()

    def memory_limit(self) -> int:
        """Return the memory limit of a child: on a CPU most of the free memory; 0 on a GPU, whose driver sets it."""
        return int(available_memory() * _MEMORY_SHARE) if self.workload.device_type == "cpu" else 0

    def calls(self, trials: Sequence[Trial]) -> float:
        """Return how many calls a process makes."""
        return self.settings.goal.calls_for(baseline_seconds(trials))

    def spread_over(self, trials: Sequence[Trial]) -> float:
        """Return over how many calls start-up is spread when candidates are ranked."""
        return self.settings.goal.spread_over(self.calls(trials))

    def contenders(self, trials: Sequence[Trial]) -> list[Contender]:
        """Return a contender for each measured trial; see `contenders_of`."""
        return contenders_of(trials, self.settings.goal)

    def verdict(self, trials: Sequence[Trial], goal: Goal | None = None) -> Verdict:
        """Judge these trials, which must include the measured baseline, for this goal or the run's own."""
        contenders = contenders_of(trials, goal or self.settings.goal)
        margin = scatter_of([t for t in trials if t.measurement]).margin(max(c.processes for c in contenders))
        return judge(contenders, self.spread_over(trials), margin, words_of(self.workload.kind))

    def pass_seconds(self, trials: Sequence[Trial], plan: Plan) -> float:
        """Return the baseline's seconds for one call of every sample, with as many samples per call as the plan has."""
        measured = [trial for trial in trials if trial.measurement]
        if not measured:
            return 0.0
        factors = [trial.batch_factor / trial.plan.batch for trial in measured if trial.plan.batch]
        factor = plan.batch * (factors[0] if factors else 1.0) if plan.batch else 1.0
        return baseline_seconds(measured) * self.workload.sample_count * factor

    def best(self, trials: Sequence[Trial], *, of_other_batches: bool | None = None) -> Contender | None:
        """Return the fastest candidate that meets every constraint, if there is one.

        `of_other_batches`: consider only candidates with another batch (True), or only those with the given batch
        (False).
        """
        calls = self.spread_over(trials) if any(trial.measurement for trial in trials) else 1.0
        batches = {trial.number: bool(trial.plan.batch) for trial in trials}
        feasible = [
            c for c in self.contenders(trials) if c.is_feasible and of_other_batches in (None, batches[c.number])
        ]
        return min(feasible, key=lambda c: c.per_call_s(calls).value, default=None)

    def standing(self, trial: Trial, trials: Sequence[Trial]) -> Standing | None:
        """Return what the search is told about one of these trials; None if the trial failed."""
        own = next((c for c in self.contenders(trials) if c.number == trial.number), None)
        return Standing(own.per_call_s(self.spread_over(trials)).value, own.excess) if own else None

    def too_small(self) -> BudgetTooSmall:
        """Return the error to raise if the baseline did not fit into the budget."""
        whole_s = self.ledger.budget_s + self.ledger.kept_s
        twice = format_duration(max(60.0, 2 * whole_s))
        busy = ", while other processes used this machine" if self.ledger.notice_on("host") else ""
        return BudgetTooSmall(
            f"{format_duration(whole_s)} ended before the baseline was measured{busy}",
            where="budget",
            remedy=f"give at least twice as much time, {twice}, or smaller inputs",
        )
