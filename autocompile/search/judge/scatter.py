"""The scatter between processes that measure the same program, and which differences it allows to report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from scipy.special import stdtrit

from autocompile.core.estimate import Estimate
from autocompile.core.trial import Trial
from autocompile.search.judge.steadied import USUAL_SCATTER, Eager, eager_of, mean_ratio, ratio_logs

_CONFIDENCE = 0.95
# The standard deviation that is assumed until a run has enough observations of its own: on a quiet 2-core machine,
# paired medians of one program scatter by 1 to 5% between processes. It counts for the observations that are missing to
# `_ENOUGH`.
_PRIOR_SIGMA, _ENOUGH = USUAL_SCATTER, 4
_STEADY = Eager()


@dataclass(frozen=True)
class Scatter:
    """Standard deviation of log ratios between processes, with its degrees of freedom.

    A process has a bias of its own (memory layout, thread placement) that no number of samples within it averages out.
    The standard deviation is pooled over all candidates, as each is measured in a few processes only: it is the
    within-group mean square of a one-way analysis of variance. `floor` is how far the ratio of the baseline, measured
    against itself, was from 1 in this run: a smaller difference is not reported as a difference. `eager` is how
    eager varied between processes.
    """

    sigma: float
    freedom: int
    floor: float = 0.0
    eager: Eager = _STEADY

    def halfwidth(self, trial: Trial) -> float:
        """Return the half-width of the 95% interval of a trial's log ratio (Student's t).

        The scatter between processes already contains the noise within them, so the two are not added. A single process
        may have been timed more coarsely than others, however; then its own interval counts if it is wider.
        """
        between = self.quantile * self.sigma / math.sqrt(len(trial.measurements))
        if len(trial.measurements) > 1:
            return between
        return max(between, trial.measurements[0].ratio.relative_halfwidth)

    def halfwidth_of_one_more(self, trial: Trial) -> float:
        """Return the half-width of the 95% prediction interval of the log ratio that one more process measures.

        It is wider than the interval of the mean: the new process has a bias of its own, too.
        """
        further = self.quantile * self.sigma * math.sqrt(1 + 1 / len(trial.measurements))
        return max(further, self.halfwidth(trial))

    def margin(self, processes: int) -> float:
        """Return by how much two candidates must differ, as a share, if each is measured in `processes` processes."""
        return max(self.floor, self.quantile * self.sigma * math.sqrt(2 / processes))

    @property
    def quantile(self) -> float:
        """Student's t for a two-sided 95%."""
        return float(stdtrit(self.freedom, (1 + _CONFIDENCE) / 2))


def scatter_of(trials: Sequence[Trial]) -> Scatter:
    """Pool the scatter of the candidates' processes.

    A usual value stands in where few candidates were measured repeatedly.

    The baseline's own scatter is not pooled. It is smaller, as the eager model that it is compared with shares its
    memory and its code. But its ratio must be 1, so its deviation from 1 shows which differences are meaningful in this
    run.
    """
    squares, freedom, own = 0.0, 0, 0.0
    for trial in trials:
        logs = ratio_logs(trial)
        if trial.origin == "baseline":
            own = math.sqrt(mean(x**2 for x in logs))
        elif len(logs) > 1:
            squares += sum((x - mean(logs)) ** 2 for x in logs)
            freedom += len(logs) - 1
    missing = max(0, _ENOUGH - freedom)
    pooled = (squares + missing * _PRIOR_SIGMA**2) / (freedom + missing)
    return Scatter(math.sqrt(pooled), freedom + missing, own, eager_of(trials))


def ratio_of(trial: Trial, scatter: Scatter) -> Estimate:
    """Return candidate time over baseline time, from all processes; the baseline's is 1 by definition."""
    return _ratio(trial, scatter, scatter.halfwidth)


def ratio_of_one_more(trial: Trial, scatter: Scatter) -> Estimate:
    """Return the same ratio, with the interval in which the ratio of one more process lies."""
    return _ratio(trial, scatter, scatter.halfwidth_of_one_more)


def _ratio(trial: Trial, scatter: Scatter, halfwidth: Callable[[Trial], float]) -> Estimate:
    if trial.origin == "baseline":
        return Estimate(1.0, 1.0, 1.0)
    return Estimate.around(math.exp(mean_ratio(trial, scatter.eager)), halfwidth(trial))
