"""The trial of one candidate, from its claim to its recorded outcome; several may be under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from autocompile.core.job import TrialTask
from autocompile.core.outcome import Failure, Measurement, Outcome
from autocompile.core.plan import Plan
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of
from autocompile.search.allowance import ENOUGH_TO_COMPARE, allowance
from autocompile.search.archive import Archive, Claim
from autocompile.search.choose.alike import closed_by
from autocompile.search.errand import Errand
from autocompile.search.judge.contender import baseline_seconds
from autocompile.search.judge.scatter import scatter_of
from autocompile.search.others import tell_news
from autocompile.search.packages import PackedFirst, drop, submit_trial, with_packing
from autocompile.search.run import Bench
from autocompile.space.space import Space


@dataclass(frozen=True)
class Attempt:
    """A claim, and the source of its outcome: a running task, or a trial recalled from another study of the family.

    `bound`: the reason for its time limit, in words.
    """

    claim: Claim
    source: Errand[Measurement] | PackedFirst | Trial
    bound: str


def begin(bench: Bench, space: Space, archive: Archive, claim: Claim) -> Attempt:
    """Start measuring a claimed candidate, within the limits that the trials so far allow."""
    known, plan = archive.trials(), claim.plan
    bench.listener.on_task(space.label(claim.candidate))
    limits, bound = allowance(bench, known, plan)
    recalled = archive.recalled(plan.key)
    if recalled is not None:
        return Attempt(claim, recalled, bound)
    try:
        trial = submit_trial(bench, space.label(claim.candidate), task_of(bench, known, claim), limits)
    except BaseException:
        archive.abandon(claim.number)
        raise
    return Attempt(claim, trial, bound)


def task_of(bench: Bench, known: Sequence[Trial], claim: Claim) -> TrialTask:
    """Return the task for a child process that measures a claimed candidate, as long as the candidate can still win."""
    timing = replace(bench.settings.strategy.screening.timing, rival=_rival(bench, known, claim.plan))
    return bench.trial_task(claim.plan, timing, claim.number)


def finish(bench: Bench, space: Space, archive: Archive, attempt: Attempt) -> Trial:
    """Wait for the outcome and record it; see `conclude`. An interrupted trial is abandoned; a later run may try it.

    Raises what `PendingReply.answer` raises.
    """
    source = attempt.source
    try:
        outcome = source.outcome if isinstance(source, Trial) else source.reply()
    except BaseException:
        archive.abandon(attempt.claim.number)
        raise
    finals = source.finals if isinstance(source, Trial) else ()
    return conclude(bench, space, archive, attempt.claim, outcome, bound=attempt.bound, finals=finals)


def conclude(
    bench: Bench,
    space: Space,
    archive: Archive,
    claim: Claim,
    outcome: Outcome,
    *,
    bound: str,
    finals: tuple[Measurement, ...] = (),
) -> Trial:
    """Record an outcome in the archive and the journal, and report it to the listener.

    It is judged among all trials known by now. `bound`: the reason for the limit on compiling, in words.
    """
    trial = Trial(
        number=claim.number,
        label=space.label(claim.candidate),
        candidate=claim.candidate,
        plan=claim.plan,
        origin=claim.origin,
        outcome=_with_cache(claim.plan, _explained(outcome, bound)),
        changes=len(space.changes(claim.candidate)),
        finals=finals,
    )
    if isinstance(trial.outcome, Failure):
        bench.runner.forget(trial.plan.key)
        action = "stopped" if trial.outcome.kind == "timeout" else "failed"
        bench.ledger.decide(action, trial.label, trial.outcome.message)
    elif trial.outcome.decided:
        drop(bench, trial.plan)
        bench.ledger.decide(
            "stopped", trial.label, "its timing was stopped early: it is certainly slower than the best so far"
        )
    known = archive.trials()
    archive.tell(trial, bench.standing(trial, [*known, trial]))
    bench.listener.on_trial(trial)
    _close_alike(bench, space, archive, trial, known)
    tell_news(bench, archive)
    return trial


def _with_cache(plan: Plan, outcome: Outcome) -> Outcome:
    """Count compiling as packing where production starts from the compiler's cache: filling it is done once for all."""
    if isinstance(outcome, Failure) or kind_of(plan).packs_as != "cache":
        return outcome
    return with_packing(outcome, outcome.startup.compile_s)


def _close_alike(bench: Bench, space: Space, archive: Archive, trial: Trial, earlier: Sequence[Trial]) -> None:
    """Record in the journal which candidates are not tried, as they must fail like this one."""
    out = {claim.plan.key for claim in archive.out}
    plans = [plan for _candidate, plan in space.programs if plan.key not in out]
    closed = closed_by(trial, plans, earlier)
    if closed and isinstance(trial.outcome, Failure):
        saved_s = len(closed) * sum(trial.outcome.phases_s.values())
        what = f"{len(closed)} more candidate{'s' * (len(closed) != 1)}"
        reason = trial.outcome.message.splitlines()[0].partition("; ")[0]  # without the advice
        why = f"must fail like {trial.label}, as they compile the same code: {reason}"
        saved = f"that saves about {format_duration(saved_s)}"
        bench.ledger.decide("narrowed", what, f"{why}; {saved}", saved_s=saved_s)


def _rival(bench: Bench, known: Sequence[Trial], plan: Plan) -> float:
    """Return the ratio to the baseline beyond which a candidate cannot win; 0 while there is no candidate to beat.

    It does not count the candidate's own start-up, which could only make winning harder, and adds twice the margin
    between processes. As there is also a verdict at the given batch, candidates that keep it are compared only with
    each other.
    """
    measured = [trial for trial in known if trial.measurement is not None]
    if len(measured) < ENOUGH_TO_COMPARE:  # the baseline and the first other one are timed fully
        return 0.0
    best = bench.best(known, of_other_batches=bool(plan.batch))
    if best is None or bench.settings.goal.objective == "latency":  # a mean says nothing about the percentile
        return 0.0
    best_s = best.per_call_s(bench.spread_over(known)).value
    return best_s / baseline_seconds(known) * (1 + 2 * scatter_of(measured).margin(1))


def _explained(outcome: Outcome, bound: str) -> Outcome:
    """Say why a trial was stopped, if it was, instead of when: `bound` is the reason for the limit on compiling."""
    if not isinstance(outcome, Failure) or outcome.kind != "timeout" or not bound:
        return outcome
    is_compiling = outcome.stage == "compile"
    return replace(outcome, message=bound if is_compiling else "the time that was left for the search was over")
