"""The time that is reserved for packing, estimated from what compiling took in this run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.job import Limits
from autocompile.core.plan import Plan
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind_of, serving_of
from autocompile.runtime.kind import Compiled
from autocompile.search.judge.contender import baseline_seconds, beats
from autocompile.search.packages import is_packed
from autocompile.search.run import Bench

# A child starts, and imports the modules that the forkserver has not imported.
_START_S = 1.0
# Checking a program over the ranges of its sizes takes about a second plus 100 calls of the baseline.
_CHECKING_S, _CHECKING_CALLS = 1.0, 100
# A new process that imports torch, loads the artifact and calls it.
_FRESH_START_S = 4.0
# Assumed before anything compiled was measured: packing the cache of a middling model, and loading it once.
_PACKING_GUESS_S = 8.0
# As these figures are guesses, packing starts if at least 75% of the guessed time is left.
_AT_LEAST = 0.75
# While no candidate is clearly faster than the baseline, the finals have little to compare: the search gets this share
# of their time.
_FOR_SEARCH = 0.5
# A trial that has begun may take this share of the finals' time. To end it would waste the time that it has taken.
_FOR_A_TRIAL = 1 / 3


@dataclass(frozen=True)
class Packing:
    """The seconds that packing and checking a candidate takes; 0 if its trial packed it, or it needs no packing.

    `loaded_s`: the seconds of one process that measures the loaded artifact.
    """

    takes_s: float
    loaded_s: float

    def limit_s(self, left_s: float) -> float:
        """Return how long packing may take; 0 if it is not worth starting."""
        return left_s if left_s >= max(_AT_LEAST * self.takes_s, 1.0) else 0.0

    def reserve_s(self, left_s: float) -> float:
        """Return how much of the remaining time to reserve for packing; 0 if packing does not fit."""
        return min(left_s, self.takes_s + self.loaded_s) if self.limit_s(left_s) else 0.0


def compiled_of(bench: Bench, trial: Trial, trials: Sequence[Trial]) -> Compiled:
    """Return what compiling has taken. Plain `torch.compile` counts too, as it compiles the whole model."""
    assert trial.measurement is not None
    cold_s = trial.measurement.startup.compile_s
    plain = next((t.measurement for t in trials if t.origin == "plain"), None)
    return Compiled(
        device_type=bench.workload.device_type,
        cold_s=cold_s,
        whole_s=max(cold_s, plain.startup.compile_s) if plain else cold_s,
        warm_s=trial.measurements[-1].startup.compile_s if trial.finals else None,
        one_off_s=bench.ledger.worked_s().get("toolchain", 0.0),
    )


def packing_of(bench: Bench, trial: Trial, trials: Sequence[Trial]) -> Packing:
    """Return the time for packing a measured candidate, estimated from this run."""
    assert trial.measurement is not None
    phases_s = trial.measurements[-1].phases_s
    loaded_s = _START_S + _FRESH_START_S + sum(phases_s.values()) - phases_s.get("compile", 0.0)
    start = serving_of(trial.plan).start
    if start == "cache":
        packing_s = kind_of(trial.plan).packing_s(compiled_of(bench, trial, trials))
        packing_s += _START_S + phases_s.get("load", 0.0)
        if bench.workload.training:  # packing neither checks nor times the cache: each process compiles
            return Packing(packing_s, 0.0)
        return Packing(packing_s + phases_s.get("verify", 0.0), loaded_s)
    again_s = trial.measurement.startup.pack_s + _CHECKING_S + _CHECKING_CALLS * baseline_seconds(trials)
    is_to_be_packed = start == "load" and not is_packed(bench, trial.plan)
    return Packing(_START_S + again_s if is_to_be_packed else 0.0, loaded_s)


def kept_for_packing_s(bench: Bench, trials: Sequence[Trial], *, to_come: bool = False) -> float:
    """Return the seconds reserved for packing the possible winners: at least the strategy's share.

    0 if only eager candidates can win. `to_come`: whether another compiled candidate is about to be tried.
    """
    left_s = bench.ledger.left_s()
    leading = _leading(bench, trials)
    needed = [packing_of(bench, trial, trials).reserve_s(left_s) for trial in leading]
    if not needed and not to_come:
        return 0.0
    share_s = bench.settings.strategy.stages.packing * bench.ledger.budget_s
    return max(share_s, *needed, 0.0 if needed else _PACKING_GUESS_S)


def kept_for_later_s(bench: Bench, trials: Sequence[Trial], *, to_come: bool) -> float:
    """Return the seconds that the search leaves: the share of the finals, and the time for packing."""
    return _finals_s(bench, trials) + kept_for_packing_s(bench, trials, to_come=to_come)


def kept_from_trial_s(bench: Bench, trials: Sequence[Trial], *, to_come: bool) -> float:
    """Return the seconds that a trial leaves: those that the search leaves, without a part of the finals' share."""
    finals_s = (1 - _FOR_A_TRIAL) * _finals_s(bench, trials)
    return finals_s + kept_for_packing_s(bench, trials, to_come=to_come)


def _finals_s(bench: Bench, trials: Sequence[Trial]) -> float:
    """Return the seconds for the finals: fewer while nothing is clearly faster than the baseline."""
    finals_s = bench.settings.strategy.stages.finals * bench.ledger.budget_s
    baseline = next((c for c in bench.contenders(trials) if c.origin == "baseline"), None)
    best = bench.best(trials)
    is_faster = baseline is not None and best is not None and beats(best, baseline, bench.spread_over(trials))
    return finals_s if is_faster else finals_s * (1 - _FOR_SEARCH)


def kept_at_first_s(plan: Plan) -> float:
    """Return the seconds that the first trials leave, before there is anything to compare: those for packing."""
    return _PACKING_GUESS_S if _is_delivered(plan) else 0.0


def _is_delivered(plan: Plan) -> bool:
    """Whether the plan has to be packed, or its packed program has to be started once more."""
    return serving_of(plan).is_packed


def limits_of(bench: Bench, left_s: float) -> Limits:
    """Return the limits of a child that may take `left_s` seconds."""
    return Limits(total_s=max(1.0, left_s), memory_bytes=bench.memory_limit())


def _leading(bench: Bench, trials: Sequence[Trial]) -> list[Trial]:
    """Return the packable trials that may win: those that the best does not beat; all, if none meets the goal."""
    packable = {trial.number: trial for trial in trials if trial.measurement and _is_delivered(trial.plan)}
    if not packable:
        return []
    best, calls = bench.best(trials), bench.spread_over(trials)
    contenders = [c for c in bench.contenders(trials) if c.number in packable]
    return [packable[c.number] for c in contenders if best is None or (c.is_feasible and not beats(best, c, calls))]
