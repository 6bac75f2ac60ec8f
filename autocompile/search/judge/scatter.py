"""How far apart processes are that measure the same thing, and what that leaves to be said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from scipy.special import stdtrit

from autocompile.core.estimate import Estimate
from autocompile.core.trial import Trial

_CONFIDENCE = 0.95
# What processes are taken to differ by until a run has seen enough of its own: paired medians of one program scatter
# by 1 to 5% between processes on a quiet 2-core machine. It stands in for what is missing to so many observations.
_PRIOR_SIGMA, _ENOUGH = 0.04, 4


@dataclass(frozen=True)
class Scatter:
    """Standard deviation of log ratios between processes, and the degrees of freedom it stands on.

    A process has a bias of its own (memory layout, thread placement) that no number of samples within
    it averages out. It is pooled over all candidates, as each is measured in a few processes only: the
    within-group mean square of a one-way analysis of variance. `floor` is what the baseline, measured
    against itself, differed from 1 in this run: a smaller difference is called none.
    """

    sigma: float
    freedom: int
    floor: float = 0.0

    def halfwidth(self, trial: Trial) -> float:
        """Half the 95% interval of a trial's log ratio (Student's t).

        What processes scatter by holds the noise within them, so the two are not added; but where there is
        one process only, it may have been timed more coarsely than others, which its own interval tells.
        """
        between = self.quantile * self.sigma / math.sqrt(len(trial.measurements))
        if len(trial.measurements) > 1:
            return between
        return max(between, trial.measurements[0].ratio.relative_halfwidth)

    def margin(self, processes: int) -> float:
        """The relative difference that two candidates must have, measured in so many processes each."""
        return max(self.floor, self.quantile * self.sigma * math.sqrt(2 / processes))

    @property
    def quantile(self) -> float:
        """Student's t for a two-sided 95%."""
        return float(stdtrit(self.freedom, (1 + _CONFIDENCE) / 2))


def scatter_of(trials: Sequence[Trial]) -> Scatter:
    """Pool the scatter of the candidates' processes; where little was measured twice, what is usual.

    The baseline's own scatter is not pooled, as it is smaller: what it is compared with shares its memory
    and its code. But it must read 1, so how far it is off tells what a difference means here.
    """
    squares, freedom, own = 0.0, 0, 0.0
    for trial in trials:
        logs = [math.log(m.ratio.value) for m in trial.measurements]
        if trial.origin == "baseline":
            own = math.sqrt(mean(x**2 for x in logs))
        elif len(logs) > 1:
            squares += sum((x - mean(logs)) ** 2 for x in logs)
            freedom += len(logs) - 1
    missing = max(0, _ENOUGH - freedom)
    pooled = (squares + missing * _PRIOR_SIGMA**2) / (freedom + missing)
    return Scatter(math.sqrt(pooled), freedom + missing, own)


def ratio_of(trial: Trial, scatter: Scatter) -> Estimate:
    """Candidate time over baseline time from all processes; the baseline's is 1 by definition."""
    if trial.origin == "baseline":
        return Estimate(1.0, 1.0, 1.0)
    value = math.exp(mean(math.log(m.ratio.value) for m in trial.measurements))
    return Estimate.around(value, scatter.halfwidth(trial))
