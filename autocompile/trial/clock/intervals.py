"""Confidence intervals without assumptions about the distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from autocompile.core.estimate import Estimate

CONFIDENCE = 0.95


def median_interval(samples: Sequence[float]) -> Estimate:
    """Return the median with its 95% interval from order statistics (the sign test inverted).

    Source: Conover, Practical Nonparametric Statistics, 3rd ed., 1999, section 3.2, as in
    `scipy.stats.quantile_test`. With fewer than 6 samples no such interval exists, and the range of the samples is
    returned. Raises ValueError if there are no samples.
    """
    if len(samples) == 0:
        raise ValueError("no samples")
    values = np.sort(np.asarray(samples, dtype=float))
    bounds: Any = stats.quantile_test(values, p=0.5).confidence_interval(confidence_level=CONFIDENCE)
    low = values[0] if np.isnan(bounds.low) else bounds.low
    high = values[-1] if np.isnan(bounds.high) else bounds.high
    return Estimate(value=float(np.median(values)), low=float(low), high=float(high))
