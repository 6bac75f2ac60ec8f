"""Which candidate is best for so many calls, and whether one can say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autocompile.core.envelope import Segment, lower_envelope, undominated
from autocompile.search.contender import Contender, beats

# A run in which identical programs differ by more than this says nothing.
_TOO_NOISY = 0.5
# Start-up is measured once, so a smaller difference than these is none.
_NOTABLE_START_S, _NOTABLE_START_SHARE = 0.5, 0.25
_NOTABLE_MEMORY_SHARE = 0.1


@dataclass(frozen=True)
class Verdict:
    """The winner, everyone in order, and the reason in words.

    `margin` is the relative difference below which, in this run, nothing is called faster. `tied` are those
    that the best does not beat, itself among them. `is_feasible`: whether the winner keeps every constraint.
    """

    winner: Contender
    ranking: tuple[Contender, ...]
    tied: tuple[Contender, ...]
    envelope: tuple[Segment, ...]
    margin: float
    reason: str
    is_feasible: bool = True


def judge(contenders: Sequence[Contender], calls: float, margin: float) -> Verdict:
    """Rank by amortized time over `calls` (infinity: by latency); of those that the best does not beat, the simplest.

    Only who keeps every constraint can win; if nobody does, it is whoever is nearest. `contenders` must hold the
    baseline. `margin`: what two candidates must differ by in this run, as `spread_of` tells.
    """
    ranking = sorted(contenders, key=lambda c: c.per_call_s(calls).value)
    feasible = [c for c in ranking if c.is_feasible]
    if not feasible:
        return _nearest(ranking, margin)
    eligible = _eligible(feasible, calls)
    best = eligible[0]
    tied = tuple(c for c in eligible if not beats(best, c, calls))
    winner = min(tied, key=lambda c: (c.changes, c.per_call_s(calls).value))
    reason = _reason(winner, best, tied, calls, margin) + _ruled_out(winner, ranking, calls)
    if margin > _TOO_NOISY:
        winner = next((c for c in ranking if c.origin == "baseline"), winner)
        reason = f"this host is too noisy for a verdict: one program differed by ±{margin:.0%} between processes"
    elif best.noisy and winner is not best:
        reason = (
            f"{best.label} was ahead, but others used this host while it was timed, which moves every ratio, "
            f"so nothing is called faster than {winner.label}; tune again while the host is quiet"
        )
    return Verdict(
        winner=winner,
        ranking=(winner, *(c for c in ranking if c is not winner)),
        tied=tied,
        envelope=envelope_of(feasible),
        margin=margin,
        reason=reason,
        is_feasible=winner.is_feasible,
    )


def envelope_of(contenders: Sequence[Contender]) -> tuple[Segment, ...]:
    """Which is best for how many calls, of those that are worth telling apart."""
    return lower_envelope([c.line for c in _worth_telling_apart(contenders, _adds_nothing)])


def trade_offs(contenders: Sequence[Contender], memory_bytes: dict[int, int]) -> list[Contender]:
    """The Pareto points over start-up, latency and peak memory (by trial number), least start-up first."""

    def adds_nothing(one: Contender, simpler: Contender) -> bool:
        lighter = memory_bytes[one.number] < (1 - _NOTABLE_MEMORY_SHARE) * memory_bytes[simpler.number]
        return not lighter and _adds_nothing(one, simpler)

    kept = _worth_telling_apart(contenders, adds_nothing)
    points = [(c.startup_s, c.latency_s.value, float(memory_bytes[c.number])) for c in kept]
    return sorted((kept[position] for position in undominated(points)), key=lambda c: (c.startup_s, c.number))


def _eligible(ranking: Sequence[Contender], calls: float) -> list[Contender]:
    """Once there are finals, who was not in them wins only beyond all noise: a coarse figure is equal to everything."""
    settled = [c for c in ranking if c.is_finalist or c.origin == "baseline"]
    if not any(c.is_finalist for c in settled):
        return list(ranking)
    best = settled[0]
    return [c for c in ranking if c in settled or beats(c, best, calls)]


def _ruled_out(winner: Contender, ranking: Sequence[Contender], calls: float) -> str:
    """Who is faster, and breaks a constraint."""
    faster = next((c for c in ranking if not c.is_feasible and beats(c, winner, calls)), None)
    return f"; {faster.label} is faster, and {_broken(faster)}" if faster else ""


def _broken(one: Contender) -> str:
    beyond = ", ".join(f"{name} by {excess:.1%}" for name, excess in one.excess.items() if excess > 0)
    return f"misses {beyond}"


def _nearest(ranking: Sequence[Contender], margin: float) -> Verdict:
    nearest = min(ranking, key=lambda c: c.worst_excess)
    reason = f"nothing that was measured keeps the constraints; {nearest.label} comes nearest, and {_broken(nearest)}"
    return Verdict(
        winner=nearest,
        ranking=(nearest, *(c for c in ranking if c is not nearest)),
        tied=(nearest,),
        envelope=envelope_of(ranking),
        margin=margin,
        reason=reason,
        is_feasible=False,
    )


def _worth_telling_apart(
    contenders: Sequence[Contender], adds_nothing: Callable[[Contender, Contender], bool]
) -> list[Contender]:
    """Without those that add nothing to a simpler one."""
    kept: list[Contender] = []
    for one in sorted(contenders, key=lambda c: (c.changes, c.latency_s.value)):
        if not any(adds_nothing(one, simpler) for simpler in kept):
            kept.append(one)
    return kept


def _adds_nothing(one: Contender, simpler: Contender) -> bool:
    """Whether it is surely neither quicker a call nor notably quicker to start."""
    saved_s = simpler.startup_s - one.startup_s
    starts_sooner = saved_s > max(_NOTABLE_START_S, _NOTABLE_START_SHARE * simpler.startup_s)
    return not starts_sooner and not beats(one, simpler, math.inf)


def _reason(winner: Contender, best: Contender, tied: Sequence[Contender], calls: float, margin: float) -> str:
    gain = winner.ratio.inverse()
    figure = f"{gain.value:.2f}x the baseline's speed per call (95%: {gain.low:.2f} to {gain.high:.2f})"
    each_ms = winner.per_call_s(calls).value * 1e3
    over = f" over {calls:,.0f} calls, start-up included" if math.isfinite(calls) else ", start-up not counted"
    amortized = f"{each_ms:.4g} ms a call{over}"
    if winner.origin == "baseline" and winner is best:
        return f"{amortized}; nothing faster was measured that keeps the goal"
    if winner is not best:
        return (
            f"{amortized}; {best.label} is not faster beyond the noise "
            f"(about {margin:.1%} between processes here), "
            "so the simpler one is preferred"
        )
    if len(tied) > 1:
        others = ", ".join(c.label for c in tied if c is not winner)
        return f"{amortized}, {figure}; not distinguishable from {others}, and the simplest of them"
    return f"{amortized}, {figure}"
