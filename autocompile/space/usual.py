"""The usual effects of values on a candidate, before anything was measured here."""

from __future__ import annotations

from dataclasses import dataclass

from autocompile.core.candidate import Value

Chosen = tuple[str, Value]
Feature = frozenset[Chosen]


@dataclass(frozen=True)
class Usual:
    """The usual effect of a value, on the log scale.

    It applies to the ratio of the times (`effect` ± `deviation`), to a trial's seconds (`cost`), and to the peak
    `memory`.
    """

    effect: float
    deviation: float
    cost: float = 0.0
    cost_deviation: float = 0.3
    memory: float = 0.0
    memory_deviation: float = 0.15


def feature(**values: Value) -> Feature:
    """Return the feature of having all these values."""
    return frozenset(values.items())
