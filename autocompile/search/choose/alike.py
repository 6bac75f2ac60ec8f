"""Which candidates must fail as another one did, as the cause lies in the model and both compile the same code."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.trial import Trial


def fails_alike(failure: Failure, plan: Plan, other: Plan) -> bool:
    """Whether `other` must fail for the reason that `plan` failed for.

    The compiler traces a model before a backend or its options are looked at, so these make no difference; which
    parts it traces does. Whether sizes and numbers may vary depends on how the plan marks them.
    """
    if not failure.cause or not plan.compiles or not other.compiles or _traced(plan) != _traced(other):
        return False
    if failure.cause == "skipped":
        return True
    if failure.cause in ("state changes", "argument changes"):
        # A compiler that may let numbers vary, and still compiles again, does so wherever they may not vary as well.
        return plan.dynamic is not False or other.dynamic is False
    if failure.cause == "untraceable" and plan.autocast != other.autocast:
        return False
    return _sizes(plan) == _sizes(other)


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


def _traced(plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return plan.scope, plan.left_eager


def _sizes(plan: Plan) -> tuple[object, ...]:
    return plan.dynamic, plan.ranges, plan.buckets, plan.batch
