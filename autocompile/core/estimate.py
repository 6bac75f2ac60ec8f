"""An estimate: a value with its uncertainty."""

from __future__ import annotations

import math

from autocompile.core.serde import Record


class Estimate(Record, frozen=True):
    """A value and the bounds of its interval, in the same unit: `low <= value <= high`."""

    value: float
    low: float
    high: float

    def inverse(self) -> Estimate:
        """Return the inverse of a ratio: a time ratio becomes a speed-up."""
        return Estimate(value=1 / self.value, low=1 / self.high, high=1 / self.low)

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate multiplied by a positive `factor`."""
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    @staticmethod
    def around(value: float, relative_halfwidth: float) -> Estimate:
        """Return the value with an interval that is symmetric on the log scale."""
        return Estimate(value, value * math.exp(-relative_halfwidth), value * math.exp(relative_halfwidth))

    @property
    def relative_halfwidth(self) -> float:
        """Half the width of the interval on the log scale: 0.05 means ±5%."""
        return (math.log(self.high) - math.log(self.low)) / 2
