"""The candidates among which `load(calls=)` chooses, and which of them is best for how many calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocompile.core.envelope import Segment
from autocompile.core.manifest import Served
from autocompile.core.serving import Serving
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind_of
from autocompile.search.judge.contender import Contender, contenders_of, once_packed
from autocompile.search.judge.verdict import Verdict, judge
from autocompile.search.packages import is_loaded
from autocompile.search.run import Bench


@dataclass(frozen=True)
class Offers:
    """`served`: the winner, the baseline, and the candidates that are best for some number of calls, by `envelope`.

    All of them take the winner's batch, as production uses one size. Those that are not packed compile in the process,
    if they compile at all. The packed winner is in the envelope as `..., packed`, and the time of packing is not
    counted.
    """

    served: tuple[Served, ...]
    envelope: tuple[Segment, ...]


def offers(
    bench: Bench, verdict: Verdict, winner: Trial, in_process: Sequence[Trial], serving: Serving, *, expected: bool
) -> Offers:
    """Return what an artifact can serve that starts the winner by `serving`; `expected`: it was not timed as loaded.

    `in_process`: the trials as they run without an artifact.
    """
    by_number = {trial.number: trial for trial in in_process}
    own = once_packed(verdict.winner)
    packed = replace(own, label=f"{own.label}, packed") if serving.is_packed else own
    cold = [
        c for c in _unpacked(bench, in_process) if _goes_with(by_number[c.number], winner) and c.number != own.number
    ]
    envelope = judge([packed, *cold], bench.spread_over(in_process), verdict.margin).envelope
    best = {segment.label for segment in envelope}
    kept = [c for c in cold if c.label in best or (c.origin == "baseline" and c.is_feasible)]
    first = _configured(own, winner, serving, expected=expected)
    return Offers((first, *(_configured(c, by_number[c.number]) for c in kept)), envelope)


def _unpacked(bench: Bench, trials: Sequence[Trial]) -> list[Contender]:
    """Return contenders for the trials that need no packed program, each with its start in that form."""
    without = replace(bench.settings.goal, deploy="jit", processes=1)
    return contenders_of([t for t in trials if t.measurement and not is_loaded(t.plan)], without)


def _goes_with(trial: Trial, winner: Trial) -> bool:
    return trial.plan.batch == winner.plan.batch or trial.origin == "baseline"


def _configured(one: Contender, trial: Trial, serving: Serving | None = None, *, expected: bool = False) -> Served:
    """Return how a candidate is served; by default compiled at the first call, or eager, with a cold start."""
    serving = serving or kind_of(trial.plan).unpacked
    return Served(
        serving, trial.label, trial.plan, one.startup_s, one.latency_s.value, one.ratio.inverse(), expected=expected
    )
