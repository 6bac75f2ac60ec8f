"""Which candidate is best for so many calls, and whether one can say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.envelope import Line, Segment, lower_envelope
from autocompile.core.estimate import Estimate
from autocompile.core.trial import Trial
from autocompile.search.spread import Spread, ratio_of, spread_of


@dataclass(frozen=True)
class Contender:
    """A measured trial as a line: `startup_s` once, `latency_s` each call; `ratio` is to the baseline."""

    trial: Trial
    ratio: Estimate
    latency_s: Estimate
    startup_s: float

    def per_call_s(self, calls: float) -> Estimate:
        """Amortized seconds a call; the interval is the latency's."""
        once = self.startup_s / calls
        return Estimate(once + self.latency_s.value, once + self.latency_s.low, once + self.latency_s.high)


@dataclass(frozen=True)
class Verdict:
    """The winner, everyone in order, and the reason in words.

    `margin` is the relative difference below which, in this run, nothing is called faster.
    """

    winner: Contender
    ranking: tuple[Contender, ...]
    envelope: tuple[Segment, ...]
    margin: float
    reason: str


def judge(trials: Sequence[Trial], baseline_s: float, calls: float) -> Verdict:
    """Rank by amortized time; the winner is the simplest candidate that the best one does not beat.

    Latencies are paired ratios times the run's one baseline latency: absolute times of different
    processes are not compared. `trials` must hold the measured baseline; failed ones are ignored.
    """
    measured = [trial for trial in trials if trial.measurement is not None]
    spread = spread_of(measured)
    contenders = [contender(trial, baseline_s, spread) for trial in measured]
    ranking = sorted(contenders, key=lambda c: c.per_call_s(calls).value)
    best = ranking[0]
    equals = [c for c in ranking if not beats(best, c, calls)]
    winner = min(equals, key=lambda c: (c.trial.changes, c.per_call_s(calls).value))
    margin = spread.margin(len(best.trial.measurements))
    return Verdict(
        winner=winner,
        ranking=tuple(ranking),
        envelope=lower_envelope([Line(c.trial.label, c.startup_s, c.latency_s.value) for c in contenders]),
        margin=margin,
        reason=_reason(winner, best, equals, calls, margin),
    )


def contender(trial: Trial, baseline_s: float, spread: Spread) -> Contender:
    """A measured trial's line."""
    ratio = ratio_of(trial, spread)
    return Contender(trial, ratio, ratio.scaled(baseline_s), trial.startup_s)


def hopeless(one: Contender, best: Contender, calls: float) -> bool:
    """Whether `one` is so far behind that measuring it again cannot make it the winner: twice what is left open."""
    mine, theirs = best.per_call_s(calls), one.per_call_s(calls)
    return math.log(theirs.value / mine.value) > 2 * math.hypot(mine.relative_halfwidth, theirs.relative_halfwidth)


def beats(one: Contender, other: Contender, calls: float) -> bool:
    """Whether `one` is faster than `other` with 95% confidence: the difference exceeds what both leave open."""
    mine, theirs = one.per_call_s(calls), other.per_call_s(calls)
    open_ = math.hypot(mine.relative_halfwidth, theirs.relative_halfwidth)
    return math.log(theirs.value / mine.value) > open_


def _reason(winner: Contender, best: Contender, equals: Sequence[Contender], calls: float, margin: float) -> str:
    gain = winner.ratio.inverse()
    figure = f"{gain.value:.2f}x the baseline's speed per call (95%: {gain.low:.2f} to {gain.high:.2f})"
    amortized = f"{winner.per_call_s(calls).value * 1e3:.4g} ms a call over {calls:,.0f} calls, start-up included"
    if winner.trial.origin == "baseline" and winner is best:
        return f"{amortized}; nothing that was measured is faster"
    if winner is not best:
        return (
            f"{amortized}; {best.trial.label} is not faster beyond the noise "
            f"(about {margin:.1%} between processes here), "
            "so the simpler one is preferred"
        )
    if len(equals) > 1:
        others = ", ".join(c.trial.label for c in equals if c is not winner)
        return f"{amortized}, {figure}; not distinguishable from {others}, and the simplest of them"
    return f"{amortized}, {figure}"
