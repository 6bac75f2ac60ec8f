"""What to try next: the strategy's seeds, then the choices of its policy or sampler."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median

from autocompile.core.candidate import Candidate, Value
from autocompile.core.plan import Plan
from autocompile.core.trial import Origin, Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.search.archive import Archive, Claim
from autocompile.search.choose.alike import foregone
from autocompile.search.choose.batch_limits import beyond_limit
from autocompile.search.choose.evidence import Evidence
from autocompile.search.choose.forecast import Forecast
from autocompile.search.choose.memory import memory_left, saving_seeds
from autocompile.search.choose.policy import Dropped, Stakes, choose, does_as_eager, dropped, probes
from autocompile.search.choose.remedies import remedies, waiting_remedies
from autocompile.search.choose.seeds import Seed, ordered_seeds, seeds_of_the_script, seeds_of_values
from autocompile.search.judge.contender import baseline_seconds
from autocompile.search.reserve import kept_for_later_s
from autocompile.search.run import Bench
from autocompile.space.space import Space

# The assumed seconds of a trial before one was measured.
FIRST_GUESS_S = 3.0
# Samplers repeat themselves in small categorical spaces: after this many known programs in a row, the first untried one
# is chosen.
_PATIENCE = 5


class Wanted:
    """The claims of a search, one after the other: those of the seeds, then those of the policy or sampler."""

    def __init__(self, bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> None:
        self._bench, self._space, self._archive, self._evidence = bench, space, archive, evidence
        saving = saving_seeds(space) if memory_left(bench.settings.goal, archive.trials()) < 0 else []
        now = (*seeds_of_the_script(bench.workload.script, space), *seeds_of_values(bench.first, space))
        self._seeds = deque((*now, *saving, *ordered_seeds(bench.settings.strategy, space, evidence)))
        self._hopeless: set[tuple[str, Value]] = set()
        self._repeats = 0

    def next(self) -> Claim | str | None:
        """Return the next claim, or the reason why there is none; None if the chosen candidate needs no trial.

        The reason may be temporary: the outcomes of trials under way may leave more or fewer candidates to try.
        """
        while self._seeds:
            claim = self._seeded(self._seeds.popleft())
            if claim is not None:
                return claim
        for seed in remedies(self._space, self._archive.trials(), [claim.candidate for claim in self._archive.out]):
            claim = self._seeded(seed)
            if claim is not None:
                return claim
        if self._bench.settings.strategy.search.sampler == "policy":
            return self._by_policy()
        return self._by_sampler()

    def _seeded(self, seed: Seed) -> Claim | None:
        """Claim a seed. Seeds are enqueued one by one, so that none is left in the study's queue when time is up."""
        bench, space, archive = self._bench, self._space, self._archive
        plan = space.plan(seed.candidate)
        if plan.key in known_keys(archive) or _reason_to_stop(bench, archive, [seed.candidate]):
            return None
        if (plan.batch, not plan.is_eager) in _beyond_limit(bench, archive, self._evidence):
            return None
        if seed.reason:
            bench.ledger.decide("seeded", space.label(seed.candidate), seed.reason)
        archive.enqueue(seed.candidate, "seed", space)
        return claim_next(bench, space, archive)

    def _by_sampler(self) -> Claim | str | None:
        """Claim what Optuna's sampler suggests."""
        bench, space, archive, evidence = self._bench, self._space, self._archive, self._evidence
        left = untried_programs(bench, space, archive, evidence)
        reason = _reason_to_stop(bench, archive, left)
        if reason:
            return reason
        if self._repeats >= _PATIENCE:
            archive.enqueue(left[0], _origin(space, left[0]), space)
        claim = claim_next(bench, space, archive, _beyond_limit(bench, archive, evidence))
        self._repeats = 0 if claim is not None else self._repeats + 1
        return claim

    def _by_policy(self) -> Claim | str | None:
        """Claim the candidate with the best expected gain per second, or an eager probe of it first."""
        bench, space, archive = self._bench, self._space, self._archive
        candidate = following(bench, space, archive, self._evidence, self._hopeless)
        if isinstance(candidate, str):
            return candidate
        archive.enqueue(candidate, _origin(space, candidate), space)
        return claim_next(bench, space, archive)


def _origin(space: Space, candidate: Candidate) -> Origin:
    return "plain" if candidate == space.plain_compile() else "search"


def claim_next(
    bench: Bench, space: Space, archive: Archive, beyond: Mapping[tuple[int, bool], str] | None = None
) -> Claim | None:
    """Ask for a candidate.

    None if it is known already, is under way, exceeds a limit, or has conflicting values. In these cases the study is
    told so. None also if another run holds it.
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
    return claim


def following(
    bench: Bench, space: Space, archive: Archive, evidence: Evidence, hopeless: set[tuple[str, Value]]
) -> Candidate | str:
    """Return the policy's next choice, given the trials under way, or the reason to stop.

    Values that turn out to be hopeless are added to `hopeless` and written into the journal.
    """
    trials, out = archive.trials(), [claim.candidate for claim in archive.out]
    untried = _without(hopeless, untried_programs(bench, space, archive, evidence))
    forecast = Forecast(space, evidence, trials, out)
    for value in dropped(forecast, space, trials, untried):
        hopeless.add((value.dimension, value.value))
        _narrow(bench, value)
    untried = _without(hopeless, untried)
    left_s = search_time_s(bench, trials, untried)
    # A candidate that takes longer than is left must not keep the others from being tried.
    affordable = [candidate for candidate in untried if forecast.seconds(candidate) <= left_s]
    if not evidence.trains and _only_plain_could_compile(space, trials, untried, affordable):
        return f"{format_duration(left_s)} left before the finals: only one more candidate is compiled, in their time"
    reason = _reason_to_stop(bench, archive, untried, is_time_left=bool(affordable))
    if reason:
        return reason
    ends_s = left_s if evidence.trains else math.inf
    choice = choose(forecast, space, affordable, _stakes(bench, trials), out, left_s=ends_s)
    tells = () if choice.is_last_chance else probes(space, choice.candidate)
    probe = next((probe for probe in tells if probe in untried), None)
    first = f"before {space.label(choice.candidate)}: " if probe else ""
    bench.ledger.decide("chosen", space.label(probe or choice.candidate), first + choice.reason)
    return probe or choice.candidate


def _without(hopeless: set[tuple[str, Value]], candidates: Sequence[Candidate]) -> list[Candidate]:
    def is_hopeless(candidate: Candidate) -> bool:
        found = hopeless & set(candidate.values.items())
        return any(does_as_eager(candidate, dimension) for dimension, _value in found)

    return [candidate for candidate in candidates if not is_hopeless(candidate)]


def _only_plain_could_compile(
    space: Space, trials: Sequence[Trial], untried: Sequence[Candidate], affordable: Sequence[Candidate]
) -> bool:
    """Whether nothing compiled was measured and none fits, so that plain `torch.compile` needs the finals' time."""
    if space.plain_compile() not in untried or any(kind_of(t.plan).compiles and t.measurement for t in trials):
        return False
    return not any(kind_of(space.plan(candidate)).compiles for candidate in affordable)


def _stakes(bench: Bench, trials: Sequence[Trial]) -> Stakes:
    """Return what a candidate has to beat, by the goal."""
    calls, baseline_s = bench.spread_over(trials), baseline_seconds(trials)
    best = bench.best(trials)  # None while no candidate meets the goal: then the baseline counts
    ratio = best.per_call_s(calls).value / baseline_s if best else 1.0
    goal = bench.settings.goal
    memory = memory_left(goal, trials)
    keeps = math.isinf(memory) or any(c.excess.get("max_memory", 0.0) <= 0 for c in bench.contenders(trials))
    return Stakes(math.log(ratio), calls * baseline_s, goal.processes, memory, keeps)


def _narrow(bench: Bench, value: Dropped) -> None:
    subject, saved = f"{value.dimension}={value.value}", f"that saves about {format_duration(value.saved_s)}"
    still = f" except by {' and '.join(value.still)}" if value.still else ""
    bench.ledger.decide("narrowed", subject, f"{value.reason}: not compiled{still}; {saved}", saved_s=value.saved_s)


def untried_programs(bench: Bench, space: Space, archive: Archive, evidence: Evidence) -> list[Candidate]:
    """Return the distinct programs that are neither known nor known to fail, at batch sizes that may meet the goal.

    Programs that are under way are not among them, nor those with a remedy that has not yet helped. The simplest come
    first.
    """
    trials, beyond = archive.trials(), _beyond_limit(bench, archive, evidence)
    known, waiting = known_keys(archive), waiting_remedies(space, trials)
    return [
        candidate
        for candidate, plan in space.programs
        if plan.key not in known
        and waiting.isdisjoint(candidate.values.items())
        and (plan.batch, not plan.is_eager) not in beyond
        and foregone(plan, trials) is None
    ]


def _beyond_limit(bench: Bench, archive: Archive, evidence: Evidence) -> dict[tuple[int, bool], str]:
    """Return the batch sizes, in eager or compiled, that cannot meet the goal; the journal has each once."""
    if not evidence.eager_ms:
        return {}
    beyond = beyond_limit(bench.settings.goal, evidence.eager_ms, archive.trials())
    said = {decision.subject for decision in bench.ledger.decisions if decision.action == "narrowed"}
    for (size, compiles), reason in beyond.items():
        subject = f"batch={size}{'' if compiles else ' in eager'}"
        if subject not in said:
            bench.ledger.decide("narrowed", subject, reason)
    return beyond


def _reason_to_stop(
    bench: Bench, archive: Archive, untried: Sequence[Candidate], *, is_time_left: bool | None = None
) -> str:
    """Return why none of these is tried, or "". Without `is_time_left`, the time of earlier trials decides."""
    trials = archive.trials()
    tried = f"{len(trials)} distinct programs tried, {len(untried)} not tried"
    if not untried:
        return "every distinct program was tried"
    if len(trials) + len(archive.out) >= bench.settings.strategy.search.max_trials:
        return f"{tried}, which is the limit of the strategy {bench.settings.strategy.name} (max_trials)"
    left = search_time_s(bench, trials, untried)
    if is_time_left is None:
        spent = [sum(t.outcome.phases_s.values()) for t in trials if kind_of(t.plan).compiles and t.measurement]
        is_time_left = left >= (median(spent) if spent else FIRST_GUESS_S)
    if not is_time_left:
        return f"{format_duration(left)} left before the finals and packing, too little for another trial; {tried}"
    return ""


def search_time_s(bench: Bench, trials: Sequence[Trial], untried: Sequence[Candidate]) -> float:
    """Return the seconds left for the search, without those reserved for the finals and packing."""
    runtimes = {str(candidate["runtime"]) for candidate in untried}
    to_come = any(serving_of(Plan(runtime=name)).is_packed for name in runtimes)
    return bench.ledger.left_s(keeping_s=kept_for_later_s(bench, trials, to_come=to_come))


def known_keys(archive: Archive) -> set[str]:
    """Return the plans that need not be asked for: those of all trials, and those under way in this run or others."""
    tried = {trial.plan.key for trial in archive.trials()}
    return tried | {claim.plan.key for claim in archive.out}
