"""A figure with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from autocompile.core.serde import Record


class Estimate(Record):
    """A value and the bounds of its interval, in one unit: `low <= value <= high`."""

    value: float
    low: float
    high: float

    def inverse(self) -> Estimate:
        """Of a ratio, the ratio the other way round: time ratio to speed-up."""
        return Estimate(value=1 / self.value, low=1 / self.high, high=1 / self.low)

    def scaled(self, factor: float) -> Estimate:
        """All three times a positive `factor`."""
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    @property
    def relative_halfwidth(self) -> float:
        """Half the width of the interval on the log scale: 0.05 reads as ±5%."""
        return (math.log(self.high) - math.log(self.low)) / 2


def combine_processes(estimates: Iterable[Estimate]) -> Estimate:
    """One verdict from several processes that measured the same thing.

    A process has a bias of its own (memory layout, thread placement), which no number of samples
    within it averages out. So the value is the median of the processes' values, and the interval is
    the hull of theirs: it excludes 1 only if every process alone would have said so.
    """
    seen = list(estimates)
    return Estimate(
        value=median(e.value for e in seen), low=min(e.low for e in seen), high=max(e.high for e in seen)
    )
