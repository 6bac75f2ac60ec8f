"""Which candidate is best for so many calls, and whether one can say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.envelope import Line, Segment, lower_envelope
from autocompile.core.estimate import Estimate
from autocompile.core.trial import Trial
from autocompile.search.spread import Spread, ratio_of, spread_of

# A run in which identical programs differ by more than this says nothing.
_TOO_NOISY = 0.5
# Half the interval of a start-up, relative: compiles of one program differ so from process to process.
_STARTUP_UNCERTAINTY = 0.15
# Start-up is measured once, so a smaller difference than these is none.
_NOTABLE_START_S, _NOTABLE_START_SHARE = 0.5, 0.25


@dataclass(frozen=True)
class Contender:
    """A measured trial as a line: `startup_s` once, `latency_s` each call; `ratio` is to the baseline.

    `floor`: the relative difference in latency below which, in this run, nothing is called faster.
    """

    trial: Trial
    ratio: Estimate
    latency_s: Estimate
    startup_s: float
    floor: float = 0.0

    def per_call_s(self, calls: float) -> Estimate:
        """Amortized seconds a call; the interval is the latency's, and the start-up's, which is measured once."""
        once, each = self.startup_s / calls, self.latency_s
        value = once + each.value
        half = math.hypot(each.value * each.relative_halfwidth, once * _STARTUP_UNCERTAINTY) / value
        return Estimate.around(value, half)


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
    eligible = _eligible(ranking)
    best = eligible[0]
    equals = [c for c in eligible if not beats(best, c, calls)]
    winner = min(equals, key=lambda c: (c.trial.changes, c.per_call_s(calls).value))
    margin = spread.margin(len(best.trial.measurements))
    reason = _reason(winner, best, equals, calls, margin)
    if margin > _TOO_NOISY:
        winner = next(c for c in ranking if c.trial.origin == "baseline")
        reason = f"this host is too noisy for a verdict: one program differed by ±{margin:.0%} between processes"
    lines = [Line(c.trial.label, c.startup_s, c.latency_s.value) for c in _worth_telling_apart(contenders)]
    return Verdict(
        winner=winner,
        ranking=(winner, *(c for c in ranking if c is not winner)),
        envelope=lower_envelope(lines),
        margin=margin,
        reason=reason,
    )


def _eligible(ranking: Sequence[Contender]) -> Sequence[Contender]:
    """Once there are finals, who was not in them cannot win: a coarse figure is equal to everything."""
    finalists = [c for c in ranking if c.trial.finals or c.trial.origin == "baseline"]
    return finalists if any(c.trial.finals for c in finalists) else ranking


def _worth_telling_apart(contenders: Sequence[Contender]) -> list[Contender]:
    """Without those that are surely neither quicker a call nor notably quicker to start than a simpler one."""
    kept: list[Contender] = []
    for one in sorted(contenders, key=lambda c: (c.trial.changes, c.latency_s.value)):
        if not any(_adds_nothing(one, simpler) for simpler in kept):
            kept.append(one)
    return kept


def _adds_nothing(one: Contender, simpler: Contender) -> bool:
    saved_s = simpler.startup_s - one.startup_s
    starts_sooner = saved_s > max(_NOTABLE_START_S, _NOTABLE_START_SHARE * simpler.startup_s)
    return not starts_sooner and not beats(one, simpler, math.inf)


def contender(trial: Trial, baseline_s: float, spread: Spread) -> Contender:
    """A measured trial's line."""
    ratio = ratio_of(trial, spread)
    return Contender(trial, ratio, ratio.scaled(baseline_s), trial.startup_s, spread.floor)


def hopeless(one: Contender, best: Contender, calls: float) -> bool:
    """Whether `one` is so far behind that measuring it again cannot make it the winner: twice what is left open."""
    mine, theirs = best.per_call_s(calls), one.per_call_s(calls)
    return math.log(theirs.value / mine.value) > 2 * math.hypot(mine.relative_halfwidth, theirs.relative_halfwidth)


def beats(one: Contender, other: Contender, calls: float) -> bool:
    """Whether `one` is faster than `other` with 95% confidence, and by more than the run's own A/A margin."""
    mine, theirs = one.per_call_s(calls), other.per_call_s(calls)
    open_ = math.hypot(mine.relative_halfwidth, theirs.relative_halfwidth)
    floor = one.floor * one.latency_s.value / mine.value
    return math.log(theirs.value / mine.value) > max(open_, floor)


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
