"""The search itself: ask for a candidate, measure it once, tell what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from msgspec.structs import replace

from autocompile.core.candidate import Candidate, Value
from autocompile.core.errors import InvalidWorkload
from autocompile.core.job import Limits
from autocompile.core.outcome import Failure, Measurement
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.trial import Origin, Trial
from autocompile.core.units import format_duration
from autocompile.search.archive import Archive
from autocompile.search.bench import Bench
from autocompile.search.contender import TYPICAL_LOAD_S, baseline_seconds
from autocompile.search.evidence import Evidence
from autocompile.search.forecast import Forecast
from autocompile.search.policy import Dropped, Stakes, choose, dropped, probes
from autocompile.search.seeds import ordered_seeds
from autocompile.search.spread import spread_of
from autocompile.space.space import Space

# A trial is not started when less than this share of a typical one's time is left.
_WORTH_STARTING = 1.0
_FIRST_GUESS_S = 3.0
# Samplers repeat themselves in small categorical spaces; after so many known programs in a row they are helped out.
_PATIENCE = 5
# The baseline and plain torch.compile are always timed to the end.
_ENOUGH_TO_COMPARE = 2


def try_first(bench: Bench, space: Space, archive: Archive) -> None:
    """Baseline and plain `torch.compile`: everything is compared with them.

    Raises BudgetTooSmall or InvalidWorkload if the baseline cannot be measured.
    """
    bench.listener.on_stage("search")
    first: list[tuple[Candidate, Origin]] = [(space.baseline(), "baseline")]
    if space.around.compiler_problem:
        bench.ledger.decide("skipped", "torch.compile", space.around.compiler_problem)
    else:
        first.append((space.plain_compile(), "plain"))
    for candidate, origin in first:
        if space.plan(candidate).key in _keys(archive):
            continue
        archive.enqueue(candidate, origin, space)
        trial = one_trial(bench, space, archive)
        if origin == "baseline" and trial is not None and isinstance(trial.outcome, Failure):
            if trial.outcome.kind == "timeout":
                raise bench.too_small()
            raise InvalidWorkload(
                f"the baseline itself fails: {trial.outcome.message}",
                where=bench.workload.name,
                remedy="call model(*inputs) in a loop until it runs, or see `autocompile doctor`",
            )


def search(bench: Bench, space: Space, archive: Archive, profile: Profile) -> None:
    """Try candidates, as the strategy's policy or sampler has it, until time, space or strategy end it."""
    workload = bench.workload
    seen = Evidence(profile, bench.environment, workload.device_type, len(workload.signatures))
    _try_seeds(bench, space, archive, seen)
    by_policy = bench.settings.strategy.search.sampler == "policy"
    reason = _by_policy(bench, space, archive, seen) if by_policy else _by_sampler(bench, space, archive)
    bench.ledger.decide("stopped", "search", reason)


def _try_seeds(bench: Bench, space: Space, archive: Archive, seen: Evidence) -> None:
    """One by one, so that none is left in the study's queue when time is up."""
    for seed in ordered_seeds(bench.settings.strategy, space, seen):
        if space.plan(seed.candidate).key in _keys(archive) or _reason_to_stop(bench, archive, [seed.candidate]):
            continue
        if seed.reason:
            bench.ledger.decide("seeded", space.label(seed.candidate), seed.reason)
        archive.enqueue(seed.candidate, "seed", space)
        one_trial(bench, space, archive)


def _by_sampler(bench: Bench, space: Space, archive: Archive) -> str:
    """As Optuna's sampler suggests; why it ended."""
    repeats = 0
    while not (reason := _reason_to_stop(bench, archive, untried := _untried(space, archive))):
        if repeats >= _PATIENCE:
            archive.enqueue(untried[0], "search", space)
        repeats = 0 if one_trial(bench, space, archive) is not None else repeats + 1
    return reason


def _by_policy(bench: Bench, space: Space, archive: Archive, seen: Evidence) -> str:
    """Whatever promises most for its seconds, tried in eager before it is compiled; why it ended."""
    hopeless: set[tuple[str, Value]] = set()
    while True:
        trials, untried = archive.trials(), _untried(space, archive)
        untried = [candidate for candidate in untried if not hopeless & set(candidate.values.items())]
        forecast = Forecast(space, seen, trials)
        for one in dropped(forecast, space, trials, untried):
            hopeless.add((one.dimension, one.value))
            _narrow(bench, one)
        untried = [candidate for candidate in untried if not hopeless & set(candidate.values.items())]
        reason = _reason_to_stop(bench, archive, untried)
        if reason:
            return reason
        choice = choose(forecast, space, untried, _stakes(bench, trials))
        probe = next((one for one in probes(space, choice.candidate) if one in untried), None)
        first = f"before {space.label(choice.candidate)}: " if probe else ""
        bench.ledger.decide("chosen", space.label(probe or choice.candidate), first + choice.reason)
        archive.enqueue(probe or choice.candidate, "search", space)
        one_trial(bench, space, archive)


def _stakes(bench: Bench, trials: Sequence[Trial]) -> Stakes:
    """What there is to win, by the goal."""
    calls, baseline_s = bench.spread_over(trials), baseline_seconds(trials)
    best = bench.best(trials)  # None while nothing keeps the goal: as if it were the baseline
    ratio = best.per_call_s(calls).value / baseline_s if best else 1.0
    startup_s = TYPICAL_LOAD_S if bench.settings.goal.deploy == "artifact" else None
    return Stakes(math.log(ratio), calls * baseline_s, startup_s)


def _narrow(bench: Bench, one: Dropped) -> None:
    saved = f"; that saves some {format_duration(one.saved_s)}"
    bench.ledger.decide(
        "narrowed", f"{one.dimension}={one.value}", f"{one.reason}: not compiled{saved}", saved_s=one.saved_s
    )


def _untried(space: Space, archive: Archive) -> list[Candidate]:
    """Distinct programs that no trial has measured yet, the simplest first."""
    known = _keys(archive)
    return [candidate for candidate, plan in space.programs if plan.key not in known]


def one_trial(bench: Bench, space: Space, archive: Archive) -> Trial | None:
    """Ask, measure, tell. None if the candidate was known already, or its values do not go together."""
    number, asked, origin = archive.ask(space)
    candidate = space.canonical(asked)
    conflict = space.conflict(candidate)
    if conflict:
        bench.ledger.decide("skipped", space.label(candidate), conflict)
        archive.tell_known(number, None)
        return None
    plan = space.plan(candidate)
    known = archive.trials()
    twin = next((trial for trial in known if trial.plan.key == plan.key), None)
    if twin is not None:
        archive.tell_known(number, bench.standing(twin, known))
        return None
    label = space.label(candidate)
    bench.listener.on_task(label)
    limits, bound = _limits(bench, known, plan)
    task = bench.trial_task(
        plan, replace(bench.settings.strategy.screening.timing, rival=_rival(bench, known, plan)), number
    )
    earlier = archive.recalled(plan.key)
    try:
        reply = earlier.outcome if earlier else bench.runner.run(task, limits, cache=plan.key)
    except KeyboardInterrupt:
        archive.abandon(number)
        raise
    assert isinstance(reply, Measurement | Failure)
    if earlier is None:
        bench.ledger.charge(reply.phases_s)
    trial = Trial(
        number=number, label=label, candidate=candidate, plan=plan, origin=origin, outcome=reply,
        changes=len(space.changes(candidate)), finals=earlier.finals if earlier else (),
    )  # fmt: skip
    if isinstance(reply, Failure):
        _write_down(bench, trial, reply, bound)
    elif reply.decided:
        bench.ledger.decide("stopped", label, "its timing was ended: surely behind the best so far")
    archive.tell(trial, bench.standing(trial, [*known, trial]))
    bench.listener.on_trial(trial)
    return trial


def _rival(bench: Bench, known: Sequence[Trial], plan: Plan) -> float:
    """The ratio to the baseline beyond which a candidate cannot win; 0 before there is anyone to beat.

    Taken without start-up, which only makes it harder to win, and with twice what processes differ by. There is a
    verdict at the given batch, too, so those that keep it have a rival of their own.
    """
    measured = [trial for trial in known if trial.measurement is not None]
    if len(measured) < _ENOUGH_TO_COMPARE:
        return 0.0
    best = bench.best(known, of_other_batches=bool(plan.batch))
    if best is None or bench.settings.goal.objective == "latency":  # whose quantile this mean says nothing about
        return 0.0
    best_s = best.per_call_s(bench.spread_over(known)).value
    return best_s / baseline_seconds(known) * (1 + 2 * spread_of(measured).margin(1))


def _write_down(bench: Bench, trial: Trial, failure: Failure, bound: str) -> None:
    bench.runner.forget(trial.plan.key)
    ended = failure.kind == "timeout"
    reason = failure.message
    if ended:
        reason = bound if failure.stage == "compile" else f"the time left for the search ended in phase {failure.stage}"
    bench.ledger.decide("stopped" if ended else "failed", trial.label, reason)


def _reason_to_stop(bench: Bench, archive: Archive, untried: Sequence[Candidate]) -> str:
    trials = archive.trials()
    tried = f"{len(trials)} distinct programs tried, {len(untried)} not"
    if not untried:
        return "every distinct program was tried"
    if len(trials) >= bench.settings.strategy.search.max_trials:
        return f"{tried}, as many as the strategy {bench.settings.strategy.name} wants"
    spent = [sum(t.outcome.phases_s.values()) for t in trials if t.plan.compiles and t.measurement]
    left = bench.ledger.left_s(reserve=bench.settings.strategy.stages.after_search)
    if left < _WORTH_STARTING * (median(spent) if spent else _FIRST_GUESS_S):
        return f"{format_duration(left)} left before the finals, too little for another trial; {tried}"
    return ""


def _limits(bench: Bench, known: Sequence[Trial], plan: Plan) -> tuple[Limits, str]:
    """What a trial may cost, and why no more: what is left, and for compiling no more than can pay back."""
    after_search = bench.settings.strategy.stages.after_search
    reserve = (
        after_search if len(known) >= _ENOUGH_TO_COMPARE else 0.0
    )  # without these two there is nothing to be final about
    left = max(1.0, bench.ledger.left_s(reserve=reserve))
    compile_s, reason = min(_compile_bounds(bench, known, plan, left))
    return Limits(total_s=left, compile_s=max(compile_s, 0.5), memory_bytes=bench.memory_limit()), reason


def _compile_bounds(bench: Bench, known: Sequence[Trial], plan: Plan, left_s: float) -> Iterator[tuple[float, str]]:
    """Seconds that a first pass may take, each for a reason: longer, and the candidate cannot win.

    The calls of that pass are not start-up, so they are allowed for.
    """
    yield left_s, f"the {format_duration(left_s)} left for the search ended while it compiled"
    if bench.settings.goal.deploy != "jit" or plan == Plan():
        return
    pass_s = bench.pass_seconds(known, plan)
    most_s = bench.settings.goal.entry().max_startup_s
    if most_s is not None:
        yield most_s + pass_s, f"compiling alone took more than the {format_duration(most_s)} that a start may take"
    best = bench.best(known)
    if best is not None and bench.settings.goal.objective == "time":
        calls = bench.calls(known)
        whole_s = best.per_call_s(calls).value * calls
        needs = f"{format_duration(whole_s)} that the best so far needs for all {calls:,.0f} calls"
        yield whole_s + pass_s, f"compiling alone took more than the {needs}"


def _keys(archive: Archive) -> set[str]:
    return {trial.plan.key for trial in archive.trials()}
