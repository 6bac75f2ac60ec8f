"""Those who can win, and which of them is best for how many calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autocompile.core.envelope import steps
from autocompile.search.judge.contender import Contender, beats, dominates, no_worse

# Beyond so many times the calls that make up for the longest start, start-up is no part of a call's time any more.
_NEGLIGIBLE = 10**6
# What may be given away for a simpler candidate, where two cannot be told apart.
WORTH_SIMPLICITY = 0.02


@dataclass(frozen=True)
class Field:
    """`contenders` keep every constraint, or nobody does. Where nothing `can_be_told` apart, nobody beats anybody."""

    contenders: tuple[Contender, ...]
    can_be_told: bool = True

    def winner(self, calls: float) -> Contender:
        """Of those that stand the baseline, if it does; else the simplest of those that read about as quick as any.

        Of equally simple ones it is the quickest; finalists come before others.
        """
        return self._first(self._eligible(calls), calls)

    def standing(self, calls: float) -> list[Contender]:
        """Those that are not surely behind anybody, the quickest first, for so many calls."""
        eligible = self._eligible(calls)
        quickest = sorted(eligible, key=lambda c: _quickness(c, calls))
        return [c for c in quickest if self._stands(c, quickest, calls)] or quickest[:1]

    def envelope(self) -> list[tuple[int, Contender]]:
        """Who wins from how many calls on."""
        by_number = {c.number: c for c in self.contenders}
        slowest_s = max(c.startup_s for c in self.contenders)
        last = 1 + int(_NEGLIGIBLE * slowest_s / min(c.latency_s.value for c in self.contenders))
        return [(calls, by_number[number]) for calls, number in steps(lambda n: self.winner(n).number, last)]

    def owed(self, winner: Contender, calls: float) -> tuple[Contender, ...]:
        """Who lacks a final, and so leaves the verdict open: the winner, and those that read better in every column."""
        unsettled = (c for c in self.contenders if not self._is_settled(c))
        return tuple(c for c in unsettled if c is winner or dominates(c, winner, calls))

    @cached_property
    def _settled(self) -> list[Contender]:
        return [c for c in self.contenders if self._is_settled(c)]

    @cached_property
    def _had_finals(self) -> bool:
        return any(c.is_finalist for c in self.contenders)

    def _is_settled(self, contender: Contender) -> bool:
        """Whether its figures are final; before there are finals, everybody's are as good."""
        return contender.is_finalist or contender.origin == "baseline" or not self._had_finals

    def _eligible(self, calls: float) -> list[Contender]:
        """The finalists, and who beats the one that wins among them: a coarse figure is equal to everything."""
        first = self._first(self._settled, calls)
        return self._settled + [c for c in self.contenders if not self._is_settled(c) and self._beats(c, first, calls)]

    def _first(self, some: Sequence[Contender], calls: float) -> Contender:
        quickest = sorted(some, key=lambda c: _quickness(c, calls))
        standing = [c for c in quickest if self._stands(c, quickest, calls)] or quickest[:1]
        settled = [c for c in standing if self._is_settled(c)] or standing
        enough = (1 + WORTH_SIMPLICITY) * settled[0].cost(calls)[0]
        close = [c for c in settled if c.origin == "baseline" or c.cost(calls)[0] <= enough]
        return min(close, key=lambda c: (c.origin != "baseline", c.changes))

    def _stands(self, contender: Contender, among: Sequence[Contender], calls: float) -> bool:
        """Whether nobody among these beats it, nor one that is no worse: a wide interval alone makes no winner."""
        if any(self._beats(other, contender, calls) for other in among):
            return False
        others = [c for c in among if no_worse(c, contender, calls)]
        return not any(self._beats(other, c, calls) for c in others for other in among)

    def _beats(self, contender: Contender, other: Contender, calls: float) -> bool:
        return self.can_be_told and beats(contender, other, calls)


def _quickness(contender: Contender, calls: float) -> tuple[float, ...]:
    """Ties in time are broken by the other columns, so that nobody comes before one that dominates it."""
    once = contender.startup_s, contender.packing_s
    return contender.cost(calls)[0], contender.latency_s.value, *once, contender.changes, contender.number
