"""Which candidate is best for a number of calls, and whether the measurements support it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.envelope import Segment, segments_of
from autocompile.core.limits import beyond
from autocompile.core.words import CALLS, Words
from autocompile.search.judge.contender import Contender, disturbed_ahead
from autocompile.search.judge.field import Field
from autocompile.search.judge.reason import Case, reason

# If identical programs differ by more than this, the run gives no verdict.
_TOO_NOISY = 0.5


@dataclass(frozen=True)
class Verdict:
    """The winner, all contenders in order, and the reason in words.

    `margin` is the relative difference below which this run calls nothing faster. `tied` holds the contenders that are
    not clearly slower than any other, the fastest first. `envelope` holds the winners by number of calls, found by this
    same judgement. `is_feasible`: whether the winner meets every constraint. `owed`: the contenders that lack a final
    and therefore leave the verdict open. `disturbed`: the contenders that read faster than the winner, but were
    only timed while other programs used the host.
    """

    winner: Contender
    ranking: tuple[Contender, ...]
    tied: tuple[Contender, ...]
    envelope: tuple[Segment, ...]
    margin: float
    reason: str
    is_feasible: bool = True
    owed: tuple[Contender, ...] = ()
    disturbed: tuple[Contender, ...] = ()


def judge(contenders: Sequence[Contender], calls: float, margin: float, words: Words = CALLS) -> Verdict:
    """Rank by amortized time over `calls` (infinity: by latency), and choose among those that are not clearly slower.

    The choice is the baseline, if it is one of them; else the simplest of those that read at most 2% slower than the
    fastest.

    Only a contender that meets every constraint can win. If there is none, the one that comes nearest is returned.
    `contenders` must include the baseline. `margin`: by how much two candidates must differ in this run, from
    `scatter_of`. `words`: what a call is named in the reason.
    """
    ranking = sorted(contenders, key=lambda c: c.per_call_s(calls).value)
    feasible = [c for c in ranking if c.is_feasible]
    if not feasible:
        return _nearest(ranking, margin)
    some = _undisturbed(feasible)
    field = Field(some, can_be_told=margin <= _TOO_NOISY)
    winners = field.envelope()
    winner = field.winner(calls) if math.isinf(calls) else _at(winners, calls)
    disturbed = disturbed_ahead(ranking, winner, calls)
    tied = tuple(Field(some).standing(calls))
    case = Case(winner, field.winner(calls), tied, disturbed, tuple(ranking), calls, margin, words)
    owed = field.owed(winner, calls)
    return Verdict(
        winner=winner,
        ranking=_from(winner, ranking),
        tied=case.tied,
        envelope=segments_of([(since, c.line) for since, c in winners]),
        margin=margin,
        reason=reason(case, owed, can_be_told=field.can_be_told),
        owed=owed,
        disturbed=disturbed,
    )


def _undisturbed(feasible: Sequence[Contender]) -> tuple[Contender, ...]:
    """Return the baseline and the contenders that were timed on a quiet host; all contenders, if there are none."""
    return tuple(c for c in feasible if not c.noisy or c.origin == "baseline") or tuple(feasible)


def _at(winners: Sequence[tuple[int, Contender]], calls: float) -> Contender:
    return next(c for since, c in reversed(winners) if since <= max(1.0, calls))


def _nearest(ranking: Sequence[Contender], margin: float) -> Verdict:
    """Return the contender that comes nearest to the constraints, which none of them meets, for any number of calls."""
    nearest = min(ranking, key=lambda c: (c.worst_excess, c.changes, c.latency_s.value, c.number))
    said = f"no measured candidate meets the constraints; {nearest.label} comes nearest"
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
