"""End a timing early when its outcome is already decided."""

from __future__ import annotations

import math

from scipy.special import betainc, betaln

# The probability that a candidate as fast as its rival is ever stopped early, over a timing of any length.
ERROR_RATE = 0.01


class MedianTest:
    """Tests after every observation whether a median is above a threshold, with at most ERROR_RATE false alarms.

    Counts the observations above the threshold. If the median is not above it, each observation is above it with
    probability at most 1/2. The likelihood ratio against that, mixed uniformly over all probabilities in (1/2, 1], is
    then a nonnegative supermartingale. It ever reaches 1/a with probability at most a (Ville's inequality), so testing
    after every observation does not increase the error rate.
    Source: Robbins, "Statistical methods related to the law of the iterated logarithm", Annals of
    Mathematical Statistics 41 (1970); for quantiles, Howard and Ramdas, "Sequential estimation of
    quantiles", Bernoulli 28 (2022).
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._above = self._below = 0

    def observe(self, value: float) -> bool:
        """Add an observation, and return whether the median now counts as above the threshold."""
        if value > self._threshold:
            self._above += 1
        else:
            self._below += 1
        return self._log_mixture() >= -math.log(ERROR_RATE)

    def _log_mixture(self) -> float:
        """Return the logarithm of 2^(n+1) times the integral of p^above (1-p)^below over (1/2, 1]."""
        above, below = self._above + 1, self._below + 1
        upper = float(betainc(below, above, 0.5))  # the Beta(above, below) mass above 1/2
        count = self._above + self._below
        return (count + 1) * math.log(2) + float(betaln(above, below)) + (math.log(upper) if upper > 0 else -math.inf)
