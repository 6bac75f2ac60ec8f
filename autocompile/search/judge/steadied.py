"""The mean of a candidate's ratios, without what eager's own bias in a process adds to them.

A process has a bias of its own (memory layout, thread placement), and eager may have a larger one than a candidate: a
stencil in eager took 5.4 to 7.5 ms, depending on the process, and its compiled candidates scattered by 1%. The ratio of
the two then scatters as much as eager does. Where the ratios of a candidate fall as eager's time rises, eager's time is
used as a control variate (Lavenberg and Welch, Management Science 27, 1981): the part of a ratio that is explained by
how far eager was from its mean over the whole run is taken out.

If eager is further from its mean than its scatter within trials explains, the whole machine may have been faster or
slower then, for example on another day of a continued study. The candidate was so, too. Therefore only the explained
distance is taken out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autocompile.core.trial import Trial

# With fewer processes, there is nothing to estimate a slope from.
_LEAST = 3
# The standard deviation of log times and ratios between processes that is assumed until a run shows its own.
USUAL_SCATTER = 0.04
# What is assumed of a slope counts as much as two processes in which eager is off by the usual scatter.
_PRIOR = 2 * USUAL_SCATTER**2
# How far from its mean eager may be by chance, in standard errors.
_FURTHEST = 2.5


@dataclass(frozen=True)
class Eager:
    """Eager in a run: its mean log time, the `slope` of the candidates' log ratios over it, and its `scatter`.

    All are over the trials that were measured in three or more quiet processes at the given batch; only the mean is
    over the baseline's own trial, too. The slope is -1 if candidates do not follow eager, and 0 if they do, or if eager
    hardly varies. `scatter` is the standard deviation of a log time between the processes of one trial.
    """

    mean: float = 0.0
    slope: float = 0.0
    scatter: float = 0.0


def eager_of(trials: Sequence[Trial]) -> Eager:
    """Return how eager varied in a run."""
    enough = [trial for trial in trials if _has_enough(trial)]
    if not enough:
        return Eager()
    candidates = [trial for trial in enough if trial.origin != "baseline"]
    covariance, square = (sum(parts) for parts in zip((0.0, 0.0), *map(_moments, candidates), strict=True))
    freedom = sum(len(trial.measurements) - 1 for trial in candidates)
    logs = [log for trial in enough for log in _eager_logs(trial)]
    return Eager(fmean(logs), _within(covariance / (square + _PRIOR)), math.sqrt(square / max(1, freedom)))


def mean_ratio(trial: Trial, eager: Eager) -> float:
    """Return the mean log ratio over the processes of a trial.

    Its own processes tell its slope, and the slope of all candidates is assumed as far as they do not.
    """
    mean = fmean(ratio_logs(trial))
    if not _has_enough(trial):
        return mean
    covariance, square = _moments(trial)
    slope = _within((covariance + _PRIOR * eager.slope) / (square + _PRIOR))
    most = _FURTHEST * eager.scatter / math.sqrt(len(trial.measurements))
    distance = fmean(_eager_logs(trial)) - eager.mean
    return mean - slope * min(most, max(-most, distance))


def _moments(trial: Trial) -> tuple[float, float]:
    """Return the sums of products for the slope: of both, and of eager's log time alone, about their means."""
    eager, ratios = _eager_logs(trial), ratio_logs(trial)
    middle, mean = fmean(eager), fmean(ratios)
    covariance = sum((x - middle) * (y - mean) for x, y in zip(eager, ratios, strict=True))
    return covariance, sum((x - middle) ** 2 for x in eager)


def _within(slope: float) -> float:
    return min(0.0, max(-1.0, slope))


def _has_enough(trial: Trial) -> bool:
    """Whether it was measured often enough, on a quiet host, next to eager with the same batch as in other trials."""
    alike = all(m.batch_factor == 1.0 for m in trial.measurements)
    return len(trial.measurements) >= _LEAST and alike and not trial.is_noisy


def _eager_logs(trial: Trial) -> list[float]:
    return [math.log(m.baseline.mean_ms) for m in trial.measurements]


def ratio_logs(trial: Trial) -> list[float]:
    """Return the log ratio of each process."""
    return [math.log(m.ratio.value) for m in trial.measurements]
