"""The limits of a trial: a longer one could not win, or would leave too little for the finals and packing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from autocompile.core.job import Limits
from autocompile.core.plan import Plan
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.core.words import words_of
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.search.reserve import kept_at_first_s, kept_from_trial_s, limits_of
from autocompile.search.run import Bench

# The baseline, and one candidate to compare with it.
ENOUGH_TO_COMPARE = 2


def allowance(bench: Bench, known: Sequence[Trial], plan: Plan) -> tuple[Limits, str]:
    """Return a trial's limits, and the reason for its limit on compiling: no time left, or it cannot pay off."""
    if any(kind_of(trial.plan).compiles and trial.measurement for trial in known):
        kept = kept_from_trial_s(bench, known, to_come=serving_of(plan).is_packed)
    else:  # no finals are needed yet
        kept = kept_at_first_s(plan)
    limits = limits_of(bench, bench.ledger.left_s(keeping_s=kept))
    compile_s, reason = min(_compile_bounds(bench, known, plan, limits.total_s))
    return replace(limits, compile_s=max(compile_s, 0.5)), reason


def _compile_bounds(bench: Bench, known: Sequence[Trial], plan: Plan, left_s: float) -> Iterator[tuple[float, str]]:
    """Yield upper bounds on the seconds of a first pass, each with its reason: beyond one, the candidate cannot win.

    The calls of that pass are not start-up, so their time is added.
    """
    yield left_s, f"compiling took longer than the {format_duration(left_s)} that were left for it"
    goal = bench.settings.goal
    if plan == Plan():
        return
    pass_s = bench.pass_seconds(known, plan)
    most_s = goal.entry().max_startup_s
    if most_s is not None and not goal.loads_artifacts:
        yield (
            most_s + pass_s,
            f"compiling alone took more than the {format_duration(most_s)} that a start may take (max_startup)",
        )
    best = bench.best(known)
    if best is not None and goal.objective == "time":
        calls, words = bench.calls(known) * goal.processes, words_of(bench.workload.kind)
        whole_s = best.per_call_s(bench.calls(known)).value * calls
        needs = f"{format_duration(whole_s)} that the best so far needs for all {calls:,.0f} {words.many}"
        yield whole_s + pass_s, f"compiling alone took more than the {needs}"
