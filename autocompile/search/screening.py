"""The search itself: ask for a candidate, measure it once, tell what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from autocompile.core.candidate import Candidate, Value
from autocompile.core.errors import InvalidWorkload, UsageError
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.trial import Origin, Trial
from autocompile.core.units import format_duration
from autocompile.core.words import words_of
from autocompile.runtime.catalogue import kind_of, plain, problem_here, serving_of
from autocompile.search.archive import Archive
from autocompile.search.attempt import begin, finish
from autocompile.search.choose.alike import foregone
from autocompile.search.choose.batch_limits import beyond_limit
from autocompile.search.choose.evidence import Evidence
from autocompile.search.choose.forecast import Forecast
from autocompile.search.choose.memory import memory_left, saving_seeds
from autocompile.search.choose.policy import Dropped, Stakes, choose, dropped, probes
from autocompile.search.choose.seeds import ordered_seeds
from autocompile.search.judge.contender import baseline_seconds
from autocompile.search.others import compare_baselines, wait_for_baseline, waits_for
from autocompile.search.reserve import kept_at_first_s, kept_for_later_s
from autocompile.search.run import Bench
from autocompile.space.space import Space

# Of the time for the search: if plain `torch.compile` takes more, what compiles sooner is tried before.
_PLAIN_SHARE = 0.3
_SOONER = 0.75
# What a trial takes, before one was measured.
_FIRST_GUESS_S = 3.0
# Samplers repeat themselves in small categorical spaces; after so many known programs in a row they are helped out.
_PATIENCE = 5


def try_first(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> None:
    """Baseline and, where it is open, plain `torch.compile`: everything is compared with them.

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
    if plan.key in _keys(archive):  # told of, or out with another run
        return
    left_s = bench.ledger.left_s(keeping_s=kept_at_first_s(plan))
    if left_s < _FIRST_GUESS_S:
        left = format_duration(left_s)
        bench.ledger.decide("skipped", "torch.compile", f"{left} left before packing, too little to compile")
        return
    archive.enqueue(candidate, "plain", space)
    one_trial(bench, space, archive)


def _try_baseline(bench: Bench, space: Space, archive: Archive) -> None:
    """Measure it, or wait for the run that does."""
    key = space.plan(space.baseline()).key
    while key not in {trial.plan.key for trial in archive.trials()}:
        archive.enqueue(space.baseline(), "baseline", space)
        trial = one_trial(bench, space, archive)
        if trial is None:
            wait_for_baseline(bench, archive)
        elif isinstance(trial.outcome, Failure):
            raise _at_fault(bench, trial.outcome)


def _at_fault(bench: Bench, failure: Failure) -> UsageError:
    """The error to raise when the baseline failed."""
    if failure.kind == "timeout":
        return bench.too_small()
    return InvalidWorkload(
        f"the baseline itself fails: {failure.message}",
        where=bench.workload.name,
        remedy=f"{words_of(bench.workload.kind).try_it} until it runs, or see `autocompile doctor`",
    )


def _not_yet(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> str:
    """Why plain `torch.compile` is not tried before all others, or "": it would keep back what compiles sooner."""
    if bench.settings.strategy.search.sampler != "policy":
        return ""
    trials, untried = archive.trials(), _untried(bench, space, archive, evidence)
    forecast = Forecast(space, evidence, trials)
    plain_s, left_s = forecast.seconds(space.plain_compile()), _left_s(bench, trials, untried)
    compiled = [candidate for candidate in untried if kind_of(space.plan(candidate)).compiles]
    sooner = [candidate for candidate in compiled if forecast.seconds(candidate) < _SOONER * plain_s]
    if not sooner or plain_s <= _PLAIN_SHARE * left_s:
        return ""
    takes, left = format_duration(plain_s), format_duration(max(left_s, 0.0))
    return f"not before others: it may take {takes} of the {left} for the search, and {len(sooner)} compile sooner"


def search(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> None:
    """Try candidates, as the strategy's policy or sampler has it, until time, space or strategy end it."""
    _try_seeds(bench, space, archive, evidence)
    by_policy = bench.settings.strategy.search.sampler == "policy"
    reason = _by_policy(bench, space, archive, evidence) if by_policy else _by_sampler(bench, space, archive, evidence)
    is_open = space.plain_runtime in space.open_values["runtime"] and not problem_here(plain(), space.around)
    if is_open and not any(kind_of(trial.plan).compiles and trial.measurement for trial in archive.trials()):
        _try_plain(bench, space, archive)  # with the time of finals that have nothing to decide
    bench.ledger.decide("stopped", "search", reason)


def _try_seeds(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> None:
    """One by one, so that none is left in the study's queue when time is up."""
    saving = saving_seeds(space) if memory_left(bench.settings.goal, archive.trials()) < 0 else []
    for seed in (*saving, *ordered_seeds(bench.settings.strategy, space, evidence)):
        plan = space.plan(seed.candidate)
        if plan.key in _keys(archive) or _reason_to_stop(bench, archive, [seed.candidate]):
            continue
        if (plan.batch, not plan.is_eager) in _beyond_limit(bench, archive, evidence):
            continue
        if seed.reason:
            bench.ledger.decide("seeded", space.label(seed.candidate), seed.reason)
        archive.enqueue(seed.candidate, "seed", space)
        one_trial(bench, space, archive)


def _by_sampler(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> str:
    """As Optuna's sampler suggests; why it ended."""
    repeats = 0
    while True:
        untried = _untried(bench, space, archive, evidence)
        reason = _reason_to_stop(bench, archive, untried)
        if reason and waits_for(bench, archive, _left_s(bench, archive.trials(), untried)):
            continue
        if reason:
            return reason
        if repeats >= _PATIENCE:
            archive.enqueue(untried[0], _origin(space, untried[0]), space)
        tried = one_trial(bench, space, archive, _beyond_limit(bench, archive, evidence))
        repeats = 0 if tried is not None else repeats + 1


def _by_policy(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> str:
    """Whatever promises most for its seconds, tried in eager before it is compiled; why it ended."""
    hopeless: set[tuple[str, Value]] = set()
    while True:
        candidate = following(bench, space, archive, evidence, hopeless)
        if isinstance(candidate, Candidate):
            archive.enqueue(candidate, _origin(space, candidate), space)
            one_trial(bench, space, archive)
        elif not waits_for(bench, archive, _left_s(bench, archive.trials(), ())):
            return candidate


def _origin(space: Space, candidate: Candidate) -> Origin:
    return "plain" if candidate == space.plain_compile() else "search"


def following(
    bench: Bench, space: Space, archive: Archive, evidence: Evidence, hopeless: set[tuple[str, Value]]
) -> Candidate | str:
    """What the policy wants next, whatever is still out; or the reason to stop.

    Values that turn out to be `hopeless` are added there, and told.
    """
    trials, out = archive.trials(), [claim.candidate for claim in archive.out]
    untried = _without(hopeless, _untried(bench, space, archive, evidence))
    forecast = Forecast(space, evidence, trials, out)
    for value in dropped(forecast, space, trials, untried):
        hopeless.add((value.dimension, value.value))
        _narrow(bench, value)
    untried = _without(hopeless, untried)
    left_s = _left_s(bench, trials, untried)
    # What takes longer than is left may not keep back what does not.
    affordable = [candidate for candidate in untried if forecast.seconds(candidate) <= left_s]
    reason = _reason_to_stop(bench, archive, untried, is_time_left=bool(affordable))
    if reason:
        return reason
    choice = choose(forecast, space, affordable, _stakes(bench, trials), out)
    probe = next((probe for probe in probes(space, choice.candidate) if probe in untried), None)
    first = f"before {space.label(choice.candidate)}: " if probe else ""
    bench.ledger.decide("chosen", space.label(probe or choice.candidate), first + choice.reason)
    return probe or choice.candidate


def _without(hopeless: set[tuple[str, Value]], candidates: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in candidates if not hopeless & set(candidate.values.items())]


def _stakes(bench: Bench, trials: Sequence[Trial]) -> Stakes:
    """What there is to win, by the goal."""
    calls, baseline_s = bench.spread_over(trials), baseline_seconds(trials)
    best = bench.best(trials)  # None while nothing keeps the goal: as if it were the baseline
    ratio = best.per_call_s(calls).value / baseline_s if best else 1.0
    goal = bench.settings.goal
    memory = memory_left(goal, trials)
    keeps = math.isinf(memory) or any(c.excess.get("max_memory", 0.0) <= 0 for c in bench.contenders(trials))
    return Stakes(math.log(ratio), calls * baseline_s, goal.processes, memory, keeps)


def _narrow(bench: Bench, value: Dropped) -> None:
    subject, saved = f"{value.dimension}={value.value}", f"that saves some {format_duration(value.saved_s)}"
    bench.ledger.decide("narrowed", subject, f"{value.reason}: not compiled; {saved}", saved_s=value.saved_s)


def _untried(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> list[Candidate]:
    """Distinct programs that no trial has measured yet, nor tells how they fail, of batch sizes that may keep the goal.

    What is still out is none of them. The simplest come first.
    """
    trials, beyond = archive.trials(), _beyond_limit(bench, archive, evidence)
    known = _keys(archive)
    return [
        candidate
        for candidate, plan in space.programs
        if plan.key not in known and (plan.batch, not plan.is_eager) not in beyond and foregone(plan, trials) is None
    ]


def _beyond_limit(bench: Bench, archive: Archive, evidence: Evidence) -> dict[tuple[int, bool], str]:
    """The batch sizes, in eager or compiled, that cannot keep the goal; the journal has each once."""
    if not evidence.eager_ms:
        return {}
    beyond = beyond_limit(bench.settings.goal, evidence.eager_ms, archive.trials())
    said = {decision.subject for decision in bench.ledger.decisions if decision.action == "narrowed"}
    for (size, compiles), reason in beyond.items():
        subject = f"batch={size}{'' if compiles else ' in eager'}"
        if subject not in said:
            bench.ledger.decide("narrowed", subject, reason)
    return beyond


def one_trial(
    bench: Bench, space: Space, archive: Archive, beyond: Mapping[tuple[int, bool], str] | None = None
) -> Trial | None:
    """Ask, measure, tell.

    None if the candidate was known already, is still out, is beyond a limit, or its values conflict.
    """
    claim = archive.ask(space)
    if not claim.is_held:
        return None
    candidate, plan = claim.candidate, claim.plan
    conflict = space.conflict(candidate) or (beyond or {}).get((plan.batch, not plan.is_eager), "")
    if conflict:
        bench.ledger.decide("skipped", space.label(candidate), conflict)
        archive.tell_known(claim.number, None)
        return None
    known = archive.trials()
    twin = next((trial for trial in known if trial.plan.key == plan.key), None)
    is_out = any(other.plan.key == plan.key for other in archive.claims if other.number != claim.number)
    if twin is not None or is_out or foregone(plan, known):
        archive.tell_known(claim.number, bench.standing(twin, known) if twin else None)
        return None
    return finish(bench, space, archive, begin(bench, space, archive, claim))


def _reason_to_stop(
    bench: Bench, archive: Archive, untried: Sequence[Candidate], *, is_time_left: bool | None = None
) -> str:
    """Why none of these is tried, or "". Whether there is time for one is judged by what trials took, if not told."""
    trials = archive.trials()
    tried = f"{len(trials)} distinct programs tried, {len(untried)} not"
    if not untried:
        return "every distinct program was tried"
    if len(trials) + len(archive.out) >= bench.settings.strategy.search.max_trials:
        return f"{tried}, as many as the strategy {bench.settings.strategy.name} wants"
    left = _left_s(bench, trials, untried)
    if is_time_left is None:
        spent = [sum(t.outcome.phases_s.values()) for t in trials if kind_of(t.plan).compiles and t.measurement]
        is_time_left = left >= (median(spent) if spent else _FIRST_GUESS_S)
    if not is_time_left:
        return f"{format_duration(left)} left before the finals and packing, too little for another trial; {tried}"
    return ""


def _left_s(bench: Bench, trials: Sequence[Trial], untried: Sequence[Candidate]) -> float:
    """Seconds for the search, beside what is kept for the finals and packing."""
    runtimes = {str(candidate["runtime"]) for candidate in untried}
    to_come = any(serving_of(Plan(runtime=name)).is_packed for name in runtimes)
    return bench.ledger.left_s(keeping_s=kept_for_later_s(bench, trials, to_come=to_come))


def _keys(archive: Archive) -> set[str]:
    """The plans that need not be asked for: of all trials, and of what is still out, with this run or others."""
    tried = {trial.plan.key for trial in archive.trials()}
    return tried | {claim.plan.key for claim in archive.out}
