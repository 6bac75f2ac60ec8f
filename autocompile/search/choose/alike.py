"""Candidates that must fail like another one: the model causes the failure, and both compile the same code."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from autocompile.core.candidate import Value
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind_of


def fails_alike(failure: Failure, plan: Plan, other: Plan) -> bool:
    """Whether `other` must fail for the same reason as `plan`.

    The runtime of both decides. Runtimes that compile programs share what prevents any program.
    """
    if failure.cause == "no program":
        return plan.batch == other.batch and all(kind_of(one).packs_as == "load" for one in (plan, other))
    return bool(failure.cause) and plan.runtime == other.runtime and kind_of(plan).fails_alike(failure, plan, other)


def foregone(plan: Plan, trials: Sequence[Trial]) -> Trial | None:
    """Return the failed trial that shows how a trial of this plan must fail, if there is one."""
    for trial in trials:
        failure = trial.outcome
        if isinstance(failure, Failure) and fails_alike(failure, trial.plan, plan):
            return trial
    return None


def speaks_against(failed: Plan, other: Plan) -> bool:
    """Whether `other` is likely to fail in its finals as `failed` did: the two differ only in what cannot matter.

    The number of threads, and whether the sizes of a program may vary, cause neither wrong results nor crashes. Nor
    does the optimizer's implementation, unless the plan that failed had one of its own.
    """
    own_update = failed.optimizer not in ("", "foreach")
    alike = replace(
        other, threads=failed.threads, sizes=failed.sizes, optimizer=other.optimizer if own_update else failed.optimizer
    )
    return alike == failed != other


def likely_to_fail(failed: Sequence[Trial], others: Sequence[Trial]) -> dict[int, str]:
    """Return which of the `others` are likely to fail in a final as finalists did: by trial number, with the reason.

    A trial is likely to fail if it has all values that the failed trials share beyond the baseline's and that no trial
    that passed has. It is also likely to fail if it differs from a failed trial only in what cannot matter.
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
            reasons[trial.number] = f"{twin.label}, which differs from it only in {differs}, failed in its final"
        elif suspects and set(suspects) <= set(own.items()):
            labels = ", ".join(one.label for one in failed[:2]) + (", ..." if len(failed) > 2 else "")
            reasons[trial.number] = (
                f"it shares {words} with {labels}, which failed, and no candidate that passed has it"
            )
    return reasons


def _suspects(failed: Sequence[Trial], others: Sequence[Trial]) -> list[tuple[str, Value]]:
    """Return the values that all failed trials share and no trial that passed a final has, by dimension."""
    passed = [trial for trial in others if trial.finals or trial.origin == "baseline"]
    innocent = {chosen for trial in passed for chosen in trial.candidate.values.items()}
    common = [set(trial.candidate.values.items()) for trial in failed]
    return [
        chosen
        for chosen in (failed[0].candidate.values.items() if failed else ())
        if all(chosen in one for one in common) and chosen not in innocent
    ]


def closed_by(trial: Trial, plans: Sequence[Plan], earlier: Sequence[Trial]) -> list[Plan]:
    """Return which of these plans this trial rules out, without those that earlier trials ruled out."""
    tried = {known.plan.key for known in (trial, *earlier)}
    untold = [plan for plan in plans if plan.key not in tried and foregone(plan, earlier) is None]
    return [plan for plan in untold if foregone(plan, [trial])]
