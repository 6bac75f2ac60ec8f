"""The time that packing keeps for itself: what it takes, judged by what compiling took in this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autocompile.core.job import Limits
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind, servings_of
from autocompile.runtime.kind import Compiled
from autocompile.search.judge.contender import baseline_seconds, beats
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
    """Seconds that packing one candidate takes: `takes_s` by the ways that it can be packed, the best first, checked;
    and `loaded_s` for one process that measures what was packed.
    """

    takes_s: Mapping[Serving, float]
    loaded_s: float

    def limit_s(self, serving: Serving, left_s: float) -> float:
        """How long packing it so may take; 0 if it is not worth starting.

        Where a compiled program takes too long, there is still time for the cache, if the candidate has one.
        """
        most_s = left_s - self._carried_s if serving.start == "load" else left_s
        return most_s if most_s >= _AT_LEAST * self.takes_s[serving] else 0.0

    def reserve_s(self, left_s: float) -> float:
        """How much of what is left to keep for the best that still fits; 0 if nothing does."""
        best = next((serving for serving in self.takes_s if self.limit_s(serving, left_s)), None)
        if best is None:
            return 0.0
        behind_s = max(self._carried_s, self.loaded_s) if best.start == "load" else self.loaded_s
        return min(left_s, self.takes_s[best] + behind_s)

    @property
    def _carried_s(self) -> float:
        """What the cache takes, 0 if there is none to carry."""
        return next((seconds for serving, seconds in self.takes_s.items() if serving.start == "cache"), 0.0)


def packing_of(bench: Bench, trial: Trial, trials: Sequence[Trial]) -> Packing:
    """What packing a measured candidate takes, as far as this run has shown.

    What plain `torch.compile` took counts, too, as it compiles the whole model.
    """
    assert trial.measurement is not None
    latest, cold_s = trial.measurements[-1], trial.measurement.startup.compile_s
    plain = next((t.measurement for t in trials if t.origin == "plain"), None)
    compiled = Compiled(
        device_type=bench.workload.device_type,
        cold_s=cold_s,
        whole_s=max(cold_s, plain.startup.compile_s) if plain else cold_s,
        warm_s=latest.startup.compile_s if trial.finals else None,
        one_off_s=bench.ledger.worked_s().get("toolchain", 0.0),
    )
    phases_s = latest.phases_s
    around_s = _START_S + phases_s.get("load", 0.0) + phases_s.get("verify", 0.0)
    checking_s = {"load": _CHECKING_S + _CHECKING_CALLS * baseline_seconds(trials)}
    return Packing(
        takes_s={
            serving: around_s + kind(serving.runtime).packing_s(compiled) + checking_s.get(serving.start, 0.0)
            for serving in servings_of(trial.plan)
        },
        loaded_s=_START_S + _FRESH_START_S + sum(phases_s.values()) - phases_s.get("compile", 0.0),
    )


def kept_for_packing_s(bench: Bench, trials: Sequence[Trial], *, to_come: bool = False) -> float:
    """Seconds of the budget that belong to packing whoever may win: at least the strategy's share.

    0 if only eager candidates may. `to_come`: whether another compiled candidate is about to be tried.
    """
    left_s = bench.ledger.left_s()
    needed = [packing_of(bench, trial, trials).reserve_s(left_s) for trial in _leading(bench, trials)]
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
    return _PACKING_GUESS_S if servings_of(plan) else 0.0


def limits_of(bench: Bench, left_s: float) -> Limits:
    """The limits of a child that may take so long."""
    return Limits(total_s=max(1.0, left_s), memory_bytes=bench.memory_limit())


def _leading(bench: Bench, trials: Sequence[Trial]) -> list[Trial]:
    """What can be packed and may win: those that the best does not beat; all, while nothing keeps the goal."""
    packable = {trial.number: trial for trial in trials if trial.measurement and servings_of(trial.plan)}
    if not packable:
        return []
    best, calls = bench.best(trials), bench.spread_over(trials)
    contenders = [c for c in bench.contenders(trials) if c.number in packable]
    return [packable[c.number] for c in contenders if best is None or (c.is_feasible and not beats(best, c, calls))]
