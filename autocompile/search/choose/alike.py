"""Which candidates must fail as another one did, as the cause lies in the model and both compile the same code."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from autocompile.core.candidate import Value
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


def speaks_against(failed: Plan, other: Plan) -> bool:
    """Whether another plan is likely to fail in its finals as this one did: they differ in what does not matter to it.

    Nothing is wrong with a result, or crashes, for the number of threads, or for whether the sizes of a program may
    vary; nor for an optimizer's implementation, unless the one that failed had one of its own.
    """
    own_update = failed.optimizer not in ("", "foreach")
    alike = replace(
        other, threads=failed.threads, sizes=failed.sizes, optimizer=other.optimizer if own_update else failed.optimizer
    )
    return alike == failed != other


def likely_to_fail(failed: Sequence[Trial], others: Sequence[Trial]) -> dict[int, str]:
    """By their numbers, those of the `others` that are likely to fail in a final as finalists did, each with why.

    They have all that the ones that failed have in common, beside the baseline's values, and that none has that has
    passed; or they differ from one in nothing that matters.
    """
    suspects = _suspects(failed, others)
    words = " ".join(f"{name}={value}" for name, value in suspects)
    reasons: dict[int, str] = {}
    for trial in others:
        if trial.finals or trial.origin in ("baseline", "plain"):
            continue
        twin = next((one for one in failed if speaks_against(one.plan, trial.plan)), None)
        own = trial.candidate.values
        if twin is not None:
            differs = " and ".join(name for name in own if own[name] != twin.candidate.values.get(name))
            reasons[trial.number] = f"{twin.label}, from which it differs in {differs} alone, failed its own"
        elif suspects and set(suspects) <= set(own.items()):
            labels = ", ".join(one.label for one in failed[:2]) + (", ..." if len(failed) > 2 else "")
            reasons[trial.number] = f"it has {words} in common with {labels}, which failed, and no one that passed has"
    return reasons


def _suspects(failed: Sequence[Trial], others: Sequence[Trial]) -> list[tuple[str, Value]]:
    """What those that failed have in common, in the order of the dimensions, and nobody that has passed a final."""
    passed = [trial for trial in others if trial.finals or trial.origin == "baseline"]
    innocent = {chosen for trial in passed for chosen in trial.candidate.values.items()}
    common = [set(trial.candidate.values.items()) for trial in failed]
    return [
        chosen
        for chosen in (failed[0].candidate.values.items() if failed else ())
        if all(chosen in one for one in common) and chosen not in innocent
    ]


def closed_by(trial: Trial, plans: Sequence[Plan], earlier: Sequence[Trial]) -> list[Plan]:
    """Of these plans those that need not be tried for this trial's sake; what earlier trials told is left out."""
    tried = {known.plan.key for known in (trial, *earlier)}
    untold = [plan for plan in plans if plan.key not in tried and foregone(plan, earlier) is None]
    return [plan for plan in untold if foregone(plan, [trial])]
