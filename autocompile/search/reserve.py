"""The time that packing keeps for itself: what it takes, judged by what compiling took in this run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.job import Limits
from autocompile.core.plan import Plan
from autocompile.core.serving import Serving
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import servings_of
from autocompile.search.judge.contender import baseline_seconds, beats
from autocompile.search.run import Bench

# A child starts, and imports what the forkserver has not.
_START_S = 1.0
# An ahead-of-time program: export and the C++ around the kernels, some 11 s on 2 cores, and the kernels, which on a
# CPU are compiled as one file (of a MobileNetV2, a transformer, a small CNN and a stencil: 0.3 to 0.5 of the time that
# compiling them took in process).
_PROGRAM_S = 11.0
_KERNELS_SHARE = {"cpu": 0.5}
# Checking a program over the ranges of its sizes takes about as long as so many calls of the baseline.
_CHECKING_S, _CHECKING_CALLS = 1.0, 100
# Compiling once more from a warm cache, as long as no final has shown it: some seconds, and this share of what
# compiling took.
_WARM_S, WARM_SHARE = 2.0, 0.15
# A fresh process that imports torch, loads the artifact and calls it.
_FRESH_START_S = 4.0
# Before anything compiled was measured: a carried cache of a middling model, and loading it once.
_CARRIED_GUESS_S = 8.0
# The figures above are guesses; packing is started with 75% of the time guessed for it.
_AT_LEAST = 0.75


@dataclass(frozen=True)
class Packing:
    """Seconds that packing one candidate takes: `ahead_s` as a compiled program, `carried_s` as a carried compiler
    cache (both checked), and `loaded_s` for one process that measures what was packed. `servings`: how it can be
    packed, the best first.
    """

    servings: tuple[Serving, ...]
    ahead_s: float
    carried_s: float
    loaded_s: float

    def takes_s(self, serving: Serving) -> float:
        """What packing it so takes."""
        return self.ahead_s if serving.start == "load" else self.carried_s

    def limit_s(self, serving: Serving, left_s: float) -> float:
        """How long packing it so may take; 0 if it is not worth starting.

        Where a compiled program takes too long, there is still time for the cache.
        """
        most_s = left_s - self.carried_s if serving.start == "load" else left_s
        return most_s if most_s >= _AT_LEAST * self.takes_s(serving) else 0.0

    def reserve_s(self, left_s: float) -> float:
        """How much of what is left to keep for the best that still fits; 0 if nothing does."""
        best = next((serving for serving in self.servings if self.limit_s(serving, left_s)), None)
        if best is None:
            return 0.0
        if best.start == "load":
            return min(left_s, self.ahead_s + max(self.carried_s, self.loaded_s))
        return min(left_s, self.carried_s + self.loaded_s)


def packing_of(bench: Bench, trial: Trial, trials: Sequence[Trial]) -> Packing:
    """What packing a measured candidate takes, as far as this run has shown.

    A program is compiled whole, whatever the candidate compiled of the model, so plain `torch.compile` counts, too.
    """
    assert trial.measurement is not None
    latest, cold_s = trial.measurements[-1], trial.measurement.startup.compile_s
    plain = next((t.measurement for t in trials if t.origin == "plain"), None)
    whole_s = max(cold_s, plain.startup.compile_s) if plain else cold_s
    kernels_s = whole_s * _KERNELS_SHARE.get(bench.workload.device_type, 1.0)
    warm_s = latest.startup.compile_s if trial.finals else _WARM_S + WARM_SHARE * cold_s
    # A machine whose compiler was never used has headers to precompile for such programs, too.
    one_off_s = bench.ledger.worked_s().get("toolchain", 0.0)
    checking_s = _CHECKING_S + _CHECKING_CALLS * baseline_seconds(trials)
    phases_s = latest.phases_s
    verifying_s, loading_s = phases_s.get("verify", 0.0), phases_s.get("load", 0.0)
    return Packing(
        servings=servings_of(trial.plan),
        ahead_s=_START_S + loading_s + one_off_s + _PROGRAM_S + kernels_s + checking_s + verifying_s,
        carried_s=_START_S + loading_s + min(warm_s, cold_s) + verifying_s,
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
    return max(share_s, *needed, 0.0 if needed else _CARRIED_GUESS_S)


def kept_for_later_s(bench: Bench, trials: Sequence[Trial], *, to_come: bool) -> float:
    """What the search leaves: the share of the finals, and the time for packing."""
    finals_s = bench.settings.strategy.stages.finals * bench.ledger.budget_s
    return finals_s + kept_for_packing_s(bench, trials, to_come=to_come)


def kept_at_first_s(plan: Plan) -> float:
    """What the first trials leave, before there is anything to compare: what can be packed must still be."""
    return _CARRIED_GUESS_S if servings_of(plan) else 0.0


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
