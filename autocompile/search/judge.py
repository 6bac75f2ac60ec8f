"""Which candidate is best for so many calls, and whether one can say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.envelope import Line, Segment, lower_envelope
from autocompile.core.estimate import Estimate
from autocompile.core.trial import Trial


@dataclass(frozen=True)
class Contender:
    """A measured trial as a line: `startup_s` once, `latency_s` each call."""

    trial: Trial
    latency_s: Estimate
    startup_s: float

    def per_call_s(self, calls: float) -> Estimate:
        """Amortized seconds a call; the interval is the latency's."""
        return Estimate(
            value=self.startup_s / calls + self.latency_s.value,
            low=self.startup_s / calls + self.latency_s.low,
            high=self.startup_s / calls + self.latency_s.high,
        )


@dataclass(frozen=True)
class Verdict:
    """The winner, everyone else in order, and the reason in words.

    `margin` is what a difference must exceed, relative: what this run made of no difference at all.
    """

    winner: Contender
    ranking: tuple[Contender, ...]
    envelope: tuple[Segment, ...]
    margin: float
    reason: str


def contender(trial: Trial, baseline_s: float) -> Contender:
    """A trial's line. Its latency is its paired ratio times the run's one baseline latency.

    Absolute times of different processes are not compared: one process may be slower as a whole.
    """
    return Contender(trial, trial.ratio.scaled(baseline_s), trial.startup_s)


def judge(trials: Sequence[Trial], baseline_s: float, calls: float) -> Verdict:
    """Rank by amortized time; the winner is the simplest candidate that the best one does not beat.

    A beats B only if B's whole interval lies above A's value by more than the margin. `trials` must
    hold the measured baseline. Failed trials are ignored.
    """
    contenders = [contender(t, baseline_s) for t in trials if t.measurement is not None]
    margin = self_margin(trials)
    ranking = sorted(contenders, key=lambda c: c.per_call_s(calls).value)
    best = ranking[0]
    equals = [c for c in ranking if not beats(best, c, calls, margin)]
    winner = min(equals, key=lambda c: (c.trial.changes, c.per_call_s(calls).value))
    return Verdict(
        winner=winner,
        ranking=tuple(ranking),
        envelope=lower_envelope([Line(c.trial.label, c.startup_s, c.latency_s.value) for c in contenders]),
        margin=margin,
        reason=_reason(winner, best, equals, calls, margin),
    )


def beats(one: Contender, other: Contender, calls: float, margin: float) -> bool:
    """Whether `one` is faster than `other` beyond doubt: the difference exceeds the noise of both."""
    mine, theirs = one.per_call_s(calls), other.per_call_s(calls)
    noise = math.hypot(mine.relative_halfwidth, theirs.relative_halfwidth)
    return math.log(theirs.value / mine.value) > max(noise, margin)


def self_margin(trials: Sequence[Trial]) -> float:
    """What this run measured between identical programs: the baseline's trial times the model against itself."""
    seen = [m.ratio for t in trials if t.origin == "baseline" for m in t.measurements]
    return max((abs(math.log(bound)) for ratio in seen for bound in (ratio.low, ratio.high)), default=0.0)


def _reason(winner: Contender, best: Contender, equals: Sequence[Contender], calls: float, margin: float) -> str:
    gain = winner.trial.ratio.inverse()
    figure = f"{gain.value:.2f}x the baseline's speed per call (95%: {gain.low:.2f} to {gain.high:.2f})"
    amortized = f"{winner.per_call_s(calls).value * 1e3:.4g} ms a call over {calls:,.0f} calls, start-up included"
    if winner is not best:
        return (
            f"{amortized}; {best.trial.label} is not faster beyond the noise of ±{margin:.1%} and the intervals, "
            "so the simpler one is preferred"
        )
    if len(equals) > 1:
        others = ", ".join(c.trial.label for c in equals if c is not winner)
        return f"{amortized}, {figure}; not distinguishable from {others}, and the simplest of them"
    return f"{amortized}, {figure}"
