"""What values usually do to a candidate, before anything is seen of it here."""

from __future__ import annotations

from dataclasses import dataclass

from autocompile.core.candidate import Value

Chosen = tuple[str, Value]
Feature = frozenset[Chosen]


@dataclass(frozen=True)
class Usual:
    """What a value usually does, to logarithms.

    To the ratio of the times (`effect` ± `deviation`), to a trial's seconds (`cost`), and to the peak `memory`.
    """

    effect: float
    deviation: float
    cost: float = 0.0
    cost_deviation: float = 0.3
    memory: float = 0.0
    memory_deviation: float = 0.15


def feature(**values: Value) -> Feature:
    """Values that a candidate has, together."""
    return frozenset(values.items())
