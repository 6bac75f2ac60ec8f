"""Confidence intervals without assumptions about the distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr

from autocompile.core.estimate import Estimate

CONFIDENCE = 0.95


def median_interval(samples: Sequence[float]) -> Estimate:
    """Return the median with its 95% interval from order statistics (the sign test inverted).

    Source: Conover, Practical Nonparametric Statistics, 3rd ed., 1999, section 3.2. The interval is that of
    `scipy.stats.quantile_test`; importing `scipy.stats` would add a second to the start of each run. With fewer than 6
    samples no such interval exists, and the range of the samples is returned. Raises ValueError if there are no
    samples.
    """
    if len(samples) == 0:
        raise ValueError("no samples")
    values = np.sort(np.asarray(samples, dtype=float))
    count = len(values)
    # The number of samples below the median is binomial with p = 1/2; this is its quantile, as an index.
    first = int(np.searchsorted(bdtr(np.arange(count + 1), count, 0.5), (1 - CONFIDENCE) / 2)) - 1
    low, high = (values[first], values[-1 - first]) if first >= 0 else (values[0], values[-1])
    return Estimate(value=float(np.median(values)), low=float(low), high=float(high))
