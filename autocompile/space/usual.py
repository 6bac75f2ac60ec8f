"""What values usually do to a candidate, before anything is seen of it here."""

from __future__ import annotations

from dataclasses import dataclass

from autocompile.core.candidate import Value

Chosen = tuple[str, Value]
Feature = frozenset[Chosen]


@dataclass(frozen=True)
class Usual:
    """What a value usually does: to the log ratio (`effect` ± `deviation`), and to a trial's log seconds (`cost`)."""

    effect: float
    deviation: float
    cost: float = 0.0
    cost_deviation: float = 0.3


def feature(**values: Value) -> Feature:
    """Values that a candidate has, together."""
    return frozenset(values.items())
