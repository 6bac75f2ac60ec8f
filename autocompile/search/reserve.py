"""The time that packing keeps for itself: what it takes, judged by what compiling took in this run."""

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

# A child starts, and imports what the forkserver has not.
_START_S = 1.0
# Checking a program over the ranges of its sizes takes about as long as so many calls of the baseline.
_CHECKING_S, _CHECKING_CALLS = 1.0, 100
# A fresh process that imports torch, loads the artifact and calls it.
_FRESH_START_S = 4.0
# Before anything compiled was measured: a carried cache of a middling model, and loading it once.
_PACKING_GUESS_S = 8.0
# The figures above are guesses; packing is started with 75% of the time guessed for it.
_AT_LEAST = 0.75


@dataclass(frozen=True)
class Packing:
    """Seconds that packing a candidate takes, checked (0 if it was packed for its trial, or needs no packing).

    `loaded_s`: one process that measures what is loaded.
    """

    takes_s: float
    loaded_s: float

    def limit_s(self, left_s: float) -> float:
        """How long packing it may take; 0 if it is not worth starting."""
        return left_s if left_s >= max(_AT_LEAST * self.takes_s, 1.0) else 0.0

    def reserve_s(self, left_s: float) -> float:
        """How much of what is left to keep for it; 0 if it does not fit."""
        return min(left_s, self.takes_s + self.loaded_s) if self.limit_s(left_s) else 0.0


def compiled_of(bench: Bench, trial: Trial, trials: Sequence[Trial]) -> Compiled:
    """What compiling took so far. What plain `torch.compile` took counts, too, as it compiles the whole model."""
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
    """What packing a measured candidate takes, as far as this run has shown."""
    assert trial.measurement is not None
    phases_s = trial.measurements[-1].phases_s
    loaded_s = _START_S + _FRESH_START_S + sum(phases_s.values()) - phases_s.get("compile", 0.0)
    start = serving_of(trial.plan).start
    if start == "cache":
        packing_s = kind_of(trial.plan).packing_s(compiled_of(bench, trial, trials))
        packing_s += _START_S + phases_s.get("load", 0.0)
        if bench.workload.training:  # its cache is neither checked nor timed: every process is judged as it compiles
            return Packing(packing_s, 0.0)
        return Packing(packing_s + phases_s.get("verify", 0.0), loaded_s)
    again_s = trial.measurement.startup.pack_s + _CHECKING_S + _CHECKING_CALLS * baseline_seconds(trials)
    is_to_be_packed = start == "load" and not is_packed(bench, trial.plan)
    return Packing(_START_S + again_s if is_to_be_packed else 0.0, loaded_s)


def kept_for_packing_s(bench: Bench, trials: Sequence[Trial], *, to_come: bool = False) -> float:
    """Seconds of the budget that belong to packing whoever may win: at least the strategy's share.

    0 if only eager candidates may. `to_come`: whether another compiled candidate is about to be tried.
    """
    left_s = bench.ledger.left_s()
    leading = _leading(bench, trials)
    needed = [packing_of(bench, trial, trials).reserve_s(left_s) for trial in leading]
    if not needed and not to_come:
        return 0.0
    share_s = bench.settings.strategy.stages.packing * bench.ledger.budget_s
    return max(share_s, *needed, 0.0 if needed else _PACKING_GUESS_S)


def kept_for_later_s(bench: Bench, trials: Sequence[Trial], *, to_come: bool) -> float:
    """What the search leaves: the share of the finals, and the time for packing."""
    finals_s = bench.settings.strategy.stages.finals * bench.ledger.budget_s
    return finals_s + kept_for_packing_s(bench, trials, to_come=to_come)


def kept_at_first_s(plan: Plan) -> float:
    """What the first trials leave, before there is anything to compare: what can be packed must still be."""
    return _PACKING_GUESS_S if _is_delivered(plan) else 0.0


def _is_delivered(plan: Plan) -> bool:
    """Whether it has to be packed, or what was packed of it has to be started once more."""
    return serving_of(plan).is_packed


def limits_of(bench: Bench, left_s: float) -> Limits:
    """The limits of a child that may take so long."""
    return Limits(total_s=max(1.0, left_s), memory_bytes=bench.memory_limit())


def _leading(bench: Bench, trials: Sequence[Trial]) -> list[Trial]:
    """What can be packed and may win: those that the best does not beat; all, while nothing keeps the goal."""
    packable = {trial.number: trial for trial in trials if trial.measurement and _is_delivered(trial.plan)}
    if not packable:
        return []
    best, calls = bench.best(trials), bench.spread_over(trials)
    contenders = [c for c in bench.contenders(trials) if c.number in packable]
    return [packable[c.number] for c in contenders if best is None or (c.is_feasible and not beats(best, c, calls))]
