"""The measured candidates that no other candidate matches in start-up, latency and memory at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autocompile.core.document import TradeOff
from autocompile.core.envelope import undominated
from autocompile.search.judge.contender import Contender, beats, starts_sooner

_NOTABLE_MEMORY_SHARE = 0.1


def trade_offs(ranking: Sequence[Contender], memory_bytes: Mapping[int, int]) -> tuple[TradeOff, ...]:
    """Return the winner, which is the first of the ranking, and the Pareto points, the shortest start-up first.

    `memory_bytes`: the peak, by trial number. A candidate that violates a constraint hides none that meets all of them.
    """
    feasible = [c for c in ranking if c.is_feasible]
    points = [*_points(feasible, memory_bytes), *(c for c in _points(ranking, memory_bytes) if not c.is_feasible)]
    kept = {c.number: c for c in (ranking[0], *points)}
    return tuple(
        TradeOff(c.label, c.startup_s, c.latency_s.value * 1e3, memory_bytes[c.number], c.is_feasible)
        for c in sorted(kept.values(), key=lambda c: (c.startup_s, c.number))
    )


def _points(some: Sequence[Contender], memory_bytes: Mapping[int, int]) -> list[Contender]:
    kept = _worth_telling_apart(some, memory_bytes)
    figures = [(c.startup_s, c.latency_s.value, float(memory_bytes[c.number])) for c in kept]
    return [kept[position] for position in undominated(figures)]


def _worth_telling_apart(some: Sequence[Contender], memory_bytes: Mapping[int, int]) -> list[Contender]:
    """Return the candidates without those that have no advantage over a simpler one."""
    kept: list[Contender] = []
    for contender in sorted(some, key=lambda c: (c.changes, c.latency_s.value)):
        if not any(_adds_nothing(contender, simpler, memory_bytes) for simpler in kept):
            kept.append(contender)
    return kept


def _adds_nothing(contender: Contender, simpler: Contender, memory_bytes: Mapping[int, int]) -> bool:
    """Whether it is neither clearly faster per call, nor notably faster to start, nor notably smaller in memory."""
    lighter = memory_bytes[contender.number] < (1 - _NOTABLE_MEMORY_SHARE) * memory_bytes[simpler.number]
    return not lighter and not starts_sooner(contender, simpler) and not beats(contender, simpler, math.inf)
