"""The candidates that can win, and which of them is best for which number of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autocompile.core.envelope import steps
from autocompile.search.judge.contender import Contender, beats, dominates, no_worse

# Beyond this many times the number of calls that pays back the longest start-up, start-up no longer matters.
_NEGLIGIBLE = 10**6
# The relative time that is given up for a simpler candidate, where two cannot be distinguished.
WORTH_SIMPLICITY = 0.02


@dataclass(frozen=True)
class Field:
    """The candidates that can win: either all of them meet every constraint, or no candidate does.

    If `can_be_told` is false, the host is too noisy to distinguish candidates, and no candidate beats another.
    """

    contenders: tuple[Contender, ...]
    can_be_told: bool = True

    def winner(self, calls: float) -> Contender:
        """Return the winner among the candidates that are not clearly beaten: the baseline, if it is one of them.

        Else it is the simplest of those whose time is within 2% of the fastest, and of equally simple ones the fastest.
        Finalists come before other candidates.
        """
        return self._first(self._eligible(calls), calls)

    def standing(self, calls: float) -> list[Contender]:
        """Return the candidates that are not clearly slower than any other over `calls` calls, the fastest first."""
        return self._standing(self._eligible(calls), calls)

    def envelope(self) -> list[tuple[int, Contender]]:
        """Return the winners by number of calls, each with the number of calls from which it wins."""
        by_number = {c.number: c for c in self.contenders}
        slowest_s = max(c.startup_s for c in self.contenders)
        last = 1 + int(_NEGLIGIBLE * slowest_s / min(c.latency_s.value for c in self.contenders))
        return [(calls, by_number[number]) for calls, number in steps(lambda n: self.winner(n).number, last)]

    def owed(self, winner: Contender, calls: float) -> tuple[Contender, ...]:
        """Return the candidates that lack a final and therefore leave the verdict open.

        They are the winner, and the candidates that read better than the winner in every column.
        """
        unsettled = (c for c in self.contenders if not self._is_settled(c))
        return tuple(c for c in unsettled if c is winner or dominates(c, winner, calls))

    @cached_property
    def _settled(self) -> list[Contender]:
        return [c for c in self.contenders if self._is_settled(c)]

    @cached_property
    def _had_finals(self) -> bool:
        return any(c.is_finalist for c in self.contenders)

    def _is_settled(self, contender: Contender) -> bool:
        """Whether its figures are final. Before any finals ran, the figures of all candidates count as final."""
        return contender.is_finalist or contender.origin == "baseline" or not self._had_finals

    def _eligible(self, calls: float) -> list[Contender]:
        """Return the finalists, and the other candidates that beat the winner among the finalists.

        The other candidates were timed coarsely: their intervals are so wide that they tie with everything.
        """
        first = self._first(self._settled, calls)
        return self._settled + [c for c in self.contenders if not self._is_settled(c) and self._beats(c, first, calls)]

    def _first(self, some: Sequence[Contender], calls: float) -> Contender:
        standing = self._standing(some, calls)
        settled = [c for c in standing if self._is_settled(c)] or standing
        enough = (1 + WORTH_SIMPLICITY) * settled[0].cost(calls)[0]
        close = [c for c in settled if c.origin == "baseline" or c.cost(calls)[0] <= enough]
        return min(close, key=lambda c: (c.origin != "baseline", c.changes))

    def _standing(self, some: Sequence[Contender], calls: float) -> list[Contender]:
        """Return the candidates of `some` that no other one clearly beats, the fastest first; at least the fastest.

        A candidate is left out, too, if it is no better than a beaten one: else it could win by a wide interval alone.
        """
        quickest = sorted(some, key=lambda c: _quickness(c, calls))
        beaten = [c for c in quickest if any(self._beats(other, c, calls) for other in quickest)]
        numbers = {c.number for c in beaten}
        left = (c for c in quickest if c.number not in numbers)
        return [c for c in left if not any(no_worse(one, c, calls) for one in beaten)] or quickest[:1]

    def _beats(self, contender: Contender, other: Contender, calls: float) -> bool:
        return self.can_be_told and beats(contender, other, calls)


def _quickness(contender: Contender, calls: float) -> tuple[float, ...]:
    """Return the sort key. The other columns break ties in time, so that a dominated candidate never comes first."""
    once = contender.startup_s, contender.packing_s
    return contender.cost(calls)[0], contender.latency_s.value, *once, contender.changes, contender.number
