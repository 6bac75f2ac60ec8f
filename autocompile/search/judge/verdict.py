"""Which candidate is best for so many calls, and whether one can say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.envelope import Segment, segments_of
from autocompile.core.limits import beyond
from autocompile.core.words import CALLS, Words
from autocompile.search.judge.contender import Contender
from autocompile.search.judge.field import Field
from autocompile.search.judge.reason import Case, reason

# A run in which identical programs differ by more than this says nothing.
_TOO_NOISY = 0.5


@dataclass(frozen=True)
class Verdict:
    """The winner, everyone in order, and the reason in words.

    `margin` is the relative difference below which, in this run, nothing is called faster. `tied` are those
    that are not surely behind anybody, the quickest first. `envelope` tells who wins for how many calls, by this same
    judgement. `is_feasible`: whether the winner keeps every constraint. `owed`: who lacks a final, and so leaves the
    verdict open.
    """

    winner: Contender
    ranking: tuple[Contender, ...]
    tied: tuple[Contender, ...]
    envelope: tuple[Segment, ...]
    margin: float
    reason: str
    is_feasible: bool = True
    owed: tuple[Contender, ...] = ()


def judge(contenders: Sequence[Contender], calls: float, margin: float, words: Words = CALLS) -> Verdict:
    """Rank by amortized time over `calls` (infinity: by latency), and choose of those that are not surely behind.

    That is the baseline, if it is one of them; else the simplest of those that read at most 2% behind the quickest.

    Only who keeps every constraint can win; if nobody does, it is whoever is nearest. `contenders` must hold the
    baseline. `margin`: what two candidates must differ by in this run, as `scatter_of` tells. `words`: what a call is
    called in the reason.
    """
    ranking = sorted(contenders, key=lambda c: c.per_call_s(calls).value)
    feasible = [c for c in ranking if c.is_feasible]
    if not feasible:
        return _nearest(ranking, margin)
    some = _undisturbed(feasible)
    field = Field(some, can_be_told=margin <= _TOO_NOISY)
    winners = field.envelope()
    winner = field.winner(calls) if math.isinf(calls) else _at(winners, calls)
    case = Case(winner, field.winner(calls), tuple(Field(some).standing(calls)), tuple(ranking), calls, margin, words)
    owed = field.owed(winner, calls)
    return Verdict(
        winner=winner,
        ranking=_from(winner, ranking),
        tied=case.tied,
        envelope=segments_of([(since, c.line) for since, c in winners]),
        margin=margin,
        reason=reason(case, owed, can_be_told=field.can_be_told),
        owed=owed,
    )


def _undisturbed(feasible: Sequence[Contender]) -> tuple[Contender, ...]:
    """Without those that were timed while others used the host, unless nothing else is left; the baseline stays."""
    return tuple(c for c in feasible if not c.noisy or c.origin == "baseline") or tuple(feasible)


def _at(winners: Sequence[tuple[int, Contender]], calls: float) -> Contender:
    return next(c for since, c in reversed(winners) if since <= max(1.0, calls))


def _nearest(ranking: Sequence[Contender], margin: float) -> Verdict:
    """Nobody keeps the constraints: whoever is nearest, for any number of calls."""
    nearest = min(ranking, key=lambda c: (c.worst_excess, c.changes, c.latency_s.value, c.number))
    said = f"nothing that was measured keeps the constraints; {nearest.label} comes nearest"
    return Verdict(
        winner=nearest,
        ranking=_from(nearest, ranking),
        tied=(nearest,),
        envelope=segments_of([(1, nearest.line)]),
        margin=margin,
        reason=f"{said}, and misses {beyond(nearest.excess)}",
        is_feasible=False,
    )


def _from(first: Contender, ranking: Sequence[Contender]) -> tuple[Contender, ...]:
    return (first, *(c for c in ranking if c is not first))
