"""The search: ask for a candidate, measure it once, record the outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autocompile.core.candidate import Candidate
from autocompile.core.errors import InvalidWorkload, UsageError
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.core.words import words_of
from autocompile.runtime.catalogue import kind_of, plain, problem_here
from autocompile.search.archive import Archive
from autocompile.search.attempt import begin, finish
from autocompile.search.choose.evidence import Evidence
from autocompile.search.choose.forecast import Forecast
from autocompile.search.others import compare_baselines, wait_for_baseline, waits_for
from autocompile.search.reserve import kept_at_first_s
from autocompile.search.run import Bench
from autocompile.search.side_by_side import SideBySide
from autocompile.search.wanted import FIRST_GUESS_S, Wanted, claim_next, known_keys, search_time_s, untried_programs
from autocompile.space.space import Space

# If plain `torch.compile` takes more than this share of the search, candidates that compile sooner are tried first.
_PLAIN_SHARE = 0.2
_SOONER = 0.75
# On the log scale: a candidate that is predicted to be faster than plain by this much replaces it, if time allows only
# one of the two.
_MUCH = 0.15


def try_first(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> None:
    """Measure the baseline and, where it is open, plain `torch.compile`, for all others to be compared with.

    Raises BudgetTooSmall or InvalidWorkload if the baseline cannot be measured.
    """
    bench.listener.on_stage("search")
    _try_baseline(bench, space, archive)
    compare_baselines(bench, archive, evidence.profile.baseline_ms.value)
    problem = problem_here(plain(), space.around)
    if not problem and space.plain_runtime not in space.open_values["runtime"]:
        return
    reason = problem or _not_yet(bench, space, archive, evidence)
    if reason:
        bench.ledger.decide("skipped", "torch.compile", reason)
    else:
        _try_plain(bench, space, archive)


def _try_plain(bench: Bench, space: Space, archive: Archive) -> None:
    candidate = space.plain_compile()
    plan = space.plan(candidate)
    if plan.key in known_keys(archive):  # measured, or another run measures it
        return
    left_s = bench.ledger.left_s(keeping_s=kept_at_first_s(plan))
    if left_s < FIRST_GUESS_S:
        left = format_duration(left_s)
        bench.ledger.decide("skipped", "torch.compile", f"{left} left before packing, too little to compile")
        return
    archive.enqueue(candidate, "plain", space)
    one_trial(bench, space, archive)


def _try_baseline(bench: Bench, space: Space, archive: Archive) -> None:
    """Measure the baseline, or wait for the run that measures it."""
    key = space.plan(space.baseline()).key
    while key not in {trial.plan.key for trial in archive.trials()}:
        archive.enqueue(space.baseline(), "baseline", space)
        trial = one_trial(bench, space, archive)
        if trial is None:
            wait_for_baseline(bench, archive)
        elif isinstance(trial.outcome, Failure):
            raise _at_fault(bench, trial.outcome)


def _at_fault(bench: Bench, failure: Failure) -> UsageError:
    """Return the error to raise if the baseline failed."""
    if failure.kind == "timeout":
        return bench.too_small()
    return InvalidWorkload(
        f"the baseline itself fails: {failure.message}",
        where=bench.workload.name,
        remedy=f"{words_of(bench.workload.kind).try_it} until it runs, or see `autocompile doctor`",
    )


def _not_yet(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> str:
    """Return why plain `torch.compile` is not tried first, or "": it would delay candidates that compile sooner."""
    if bench.settings.strategy.search.sampler != "policy":
        return ""
    trials, untried = archive.trials(), untried_programs(bench, space, archive, evidence)
    forecast = Forecast(space, evidence, trials)
    plain_s, left_s = forecast.seconds(space.plain_compile()), search_time_s(bench, trials, untried)
    compiled = [candidate for candidate in untried if kind_of(space.plan(candidate)).compiles]
    better = _much_faster(space, evidence, forecast, [c for c in compiled if forecast.seconds(c) <= left_s])
    if better is not None and plain_s + forecast.seconds(better) > left_s:
        speed = math.exp(forecast.ratio(space.plain_compile()).mean - forecast.ratio(better).mean)
        left = format_duration(max(left_s, 0.0))
        return (
            f"not tried before {space.label(better)}, expected {speed:.2f}x as fast: {left} left are too short for both"
        )
    sooner = [candidate for candidate in compiled if forecast.seconds(candidate) < _SOONER * plain_s]
    if not sooner or plain_s <= _PLAIN_SHARE * left_s:
        return ""
    takes, left = format_duration(plain_s), format_duration(max(left_s, 0.0))
    return f"not tried before others: it may take {takes} of the {left} left, and {len(sooner)} others compile sooner"


def _much_faster(
    space: Space, evidence: Evidence, forecast: Forecast, compiled: Sequence[Candidate]
) -> Candidate | None:
    """In training, return the fastest candidate by prediction, if it is much faster than plain `torch.compile`."""
    if not evidence.trains or not compiled:
        return None
    fastest = min(compiled, key=lambda candidate: forecast.ratio(candidate).mean)
    gain = forecast.ratio(space.plain_compile()).mean - forecast.ratio(fastest).mean
    return fastest if gain > _MUCH else None


def search(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> None:
    """Try candidates, chosen by the strategy's policy or sampler, until time, space or strategy end the search."""
    wanted = Wanted(bench, space, archive, evidence)
    if bench.runner.lanes > 1 or len(bench.runner.machines) > 1:
        reason = SideBySide(bench, space, archive, wanted).run()
    else:
        reason = _one_by_one(bench, space, archive, wanted)
    if not any(kind_of(trial.plan).compiles and trial.measurement for trial in archive.trials()):
        _try_soonest(bench, space, archive, evidence)  # there is nothing to compare in finals, so use their time
    bench.ledger.decide("stopped", "search", reason)


def _try_soonest(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> None:
    """Try plain `torch.compile`, or what compiles much sooner if plain `torch.compile` does not fit any more."""
    forecast, left_s = Forecast(space, evidence, archive.trials()), bench.ledger.left_s()
    is_open = space.plain_runtime in space.open_values["runtime"] and not problem_here(plain(), space.around)
    plain_s = forecast.seconds(space.plain_compile()) if is_open else math.inf
    failed = {trial.plan.runtime for trial in archive.trials() if trial.measurement is None}
    able = [c for c in untried_programs(bench, space, archive, evidence) if space.plan(c).runtime not in failed]
    compiled = [candidate for candidate in able if kind_of(space.plan(candidate)).compiles]
    sooner = [candidate for candidate in compiled if forecast.seconds(candidate) < min(left_s, _SOONER * plain_s)]
    if plain_s + kept_at_first_s(space.plan(space.plain_compile())) > left_s and sooner:
        archive.enqueue(min(sooner, key=forecast.seconds), "search", space)
        one_trial(bench, space, archive)
    elif is_open:
        _try_plain(bench, space, archive)


def _one_by_one(bench: Bench, space: Space, archive: Archive, wanted: Wanted) -> str:
    """Search with one candidate at a time, and return why the search ended.

    Before it ends, it waits for the trials of other runs, as their outcomes may leave more to try.
    """
    while True:
        claim = wanted.next()
        if isinstance(claim, str):
            if not waits_for(bench, archive, search_time_s(bench, archive.trials(), ())):
                return claim
        elif claim is not None:
            finish(bench, space, archive, begin(bench, space, archive, claim))


def one_trial(bench: Bench, space: Space, archive: Archive) -> Trial | None:
    """Ask for a candidate, measure it, record it. None if there was nothing to measure; see `claim_next`."""
    claim = claim_next(bench, space, archive)
    return None if claim is None else finish(bench, space, archive, begin(bench, space, archive, claim))
