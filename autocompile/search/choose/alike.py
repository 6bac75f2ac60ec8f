"""Which candidates must fail as another one did, as the cause lies in the model and both compile the same code."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind_of


def fails_alike(failure: Failure, plan: Plan, other: Plan) -> bool:
    """Whether `other` must fail for the reason that `plan` failed for, which its runtime knows."""
    if not failure.cause or plan.runtime != other.runtime:
        return False
    return kind_of(plan).fails_alike(failure, plan, other)


def foregone(plan: Plan, trials: Sequence[Trial]) -> Trial | None:
    """The failed trial that tells how one of this plan must end, if there is any."""
    for trial in trials:
        failure = trial.outcome
        if isinstance(failure, Failure) and fails_alike(failure, trial.plan, plan):
            return trial
    return None


def closed_by(trial: Trial, plans: Sequence[Plan], earlier: Sequence[Trial]) -> list[Plan]:
    """Of these plans those that need not be tried for this trial's sake; what earlier trials told is left out."""
    tried = {known.plan.key for known in (trial, *earlier)}
    untold = [plan for plan in plans if plan.key not in tried and foregone(plan, earlier) is None]
    return [plan for plan in untold if foregone(plan, [trial])]
