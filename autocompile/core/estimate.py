"""A figure with its uncertainty."""

from __future__ import annotations

import math

from autocompile.core.serde import Record


class Estimate(Record, frozen=True):
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

    @staticmethod
    def around(value: float, relative_halfwidth: float) -> Estimate:
        """The value with an interval that is symmetric on the log scale."""
        return Estimate(value, value * math.exp(-relative_halfwidth), value * math.exp(relative_halfwidth))

    @property
    def relative_halfwidth(self) -> float:
        """Half the width of the interval on the log scale: 0.05 reads as ±5%."""
        return (math.log(self.high) - math.log(self.low)) / 2
