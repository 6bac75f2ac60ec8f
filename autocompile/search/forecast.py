"""What an untried candidate may bring, and what trying it costs: two Bayesian linear models over the values chosen.

A candidate's log ratio to the baseline, and the log of its trial's seconds, are taken to be sums of what its values do,
each with a prior (what is usual, and how far that goes) that every measured trial narrows. Values that were seen in
eager tell about compiled candidates too, so a cheap probe steers what is compiled. The conjugate update is the textbook
one for a normal prior and normal noise (Bishop, Pattern Recognition and Machine Learning, 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocompile.core.candidate import Candidate, Value
from autocompile.core.trial import Trial
from autocompile.space.space import Space

Feature = tuple[str, Value]


@dataclass(frozen=True)
class Usual:
    """What a value usually does: to the log ratio (`effect`, give or take `spread`), and to a trial's log seconds."""

    effect: float
    spread: float
    cost: float = 0.0
    cost_spread: float = 0.3


# Measured on CPUs and published for GPUs; wide, as they only order what is tried before anything is known.
_USUAL: dict[Feature, Usual] = {
    ("backend", "inductor"): Usual(-0.3, 0.5, cost=1.3),
    ("mode", "max-autotune"): Usual(0.0, 0.15, cost=0.7),
    ("mode", "max-autotune-no-cudagraphs"): Usual(0.0, 0.15, cost=0.7),
    ("mode", "reduce-overhead"): Usual(-0.1, 0.4, cost=0.1),
    ("dynamic", "dynamic"): Usual(0.05, 0.1, cost=0.2),
    ("dynamic", "marked"): Usual(0.02, 0.1, cost=0.1),
    ("dynamic", "static"): Usual(0.0, 0.1, cost=0.4),
    ("dynamic", "buckets"): Usual(0.02, 0.15, cost=0.6),
    ("amp", "bf16"): Usual(0.0, 0.5, cost=0.2),
    ("amp", "fp16"): Usual(0.3, 0.5, cost=0.2),
    ("memory_format", "channels_last"): Usual(-0.1, 0.3, cost=0.0),
    ("freezing", True): Usual(-0.05, 0.12, cost=0.1),
    ("scope", "blocks"): Usual(0.05, 0.15, cost=-0.8),
    ("scope", "around-breaks"): Usual(0.02, 0.15, cost=0.0),
}
_UNKNOWN = Usual(0.05, 0.25)
# What the sum leaves open: how values act on one another, and what processes differ by.
_NOISE, _COST_NOISE = 0.06, 0.25
_FIRST_TRIAL_S = 3.5


@dataclass(frozen=True)
class Expected:
    """A prediction: the mean of a logarithm, and its standard deviation."""

    mean: float
    deviation: float


class _Linear:
    """One of the two models."""

    def __init__(self, means: Sequence[float], deviations: Sequence[float], noise: float) -> None:
        self._precision = np.diag([1 / d**2 for d in deviations])
        self._weighted = self._precision @ np.array(means)
        self._noise = noise

    def learn(self, features: NDArray[np.float64], observed: float) -> None:
        """One more observation."""
        self._precision += np.outer(features, features) / self._noise**2
        self._weighted += features * observed / self._noise**2

    def predict(self, features: NDArray[np.float64]) -> Expected:
        """What is expected where these features are."""
        covariance = np.linalg.inv(self._precision)
        mean = float(features @ covariance @ self._weighted)
        return Expected(mean, math.sqrt(float(features @ covariance @ features) + self._noise**2))


class Forecast:
    """What is expected of the candidates of one space, given the trials so far."""

    def __init__(self, space: Space, trials: Sequence[Trial]) -> None:
        features = [(d.name, v) for d in space.dimensions for v in space.open_values[d.name] if v != space.default(d)]
        self._space = space
        self._places = {feature: position for position, feature in enumerate(features)}
        usual = [_USUAL.get(feature, _UNKNOWN) for feature in features]
        self._ratio = _Linear([u.effect for u in usual], [u.spread for u in usual], _NOISE)
        self._cost = _Linear([u.cost for u in usual], [u.cost_spread for u in usual], _COST_NOISE)
        for trial in trials:
            seen = self._features(trial.candidate)
            seconds = sum(trial.outcome.phases_s.values())
            if seconds > 0:
                self._cost.learn(seen, math.log(seconds / _FIRST_TRIAL_S))
            if trial.measurement is not None:
                self._ratio.learn(seen, math.log(trial.measurement.ratio.value))

    def ratio(self, candidate: Candidate) -> Expected:
        """The logarithm of its time over the baseline's."""
        return self._ratio.predict(self._features(candidate))

    def seconds(self, candidate: Candidate) -> float:
        """What its trial takes, start-up and all."""
        return _FIRST_TRIAL_S * math.exp(self._cost.predict(self._features(candidate)).mean)

    def _features(self, candidate: Candidate) -> NDArray[np.float64]:
        row = np.zeros(len(self._places))
        for feature in self._space.changes(candidate).items():
            row[self._places[feature]] = 1.0
        return row
