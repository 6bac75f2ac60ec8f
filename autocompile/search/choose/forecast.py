"""Predictions for untried candidates: speed, trial time and memory, by three Bayesian linear models over their values.

The models predict a candidate's log ratio to the baseline in time and in peak memory, and the log of its trial's
seconds. Each is taken to be the sum of the effects of the candidate's values and of some pairs of values. Each effect
has a prior (the usual effect and its spread), which every measured trial narrows. Values that were measured in eager
also inform the predictions for compiled candidates, so that a cheap probe steers what is compiled. A pair corrects this
where an effect differs between eager and compiled: autocast in eager, for example, converts the weights at each call.
The conjugate update is the textbook one for a normal prior and normal noise (Bishop, Pattern Recognition and Machine
Learning, 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from autocompile.core.candidate import Candidate, Value
from autocompile.core.outcome import Failure, Outcome
from autocompile.core.trial import Trial
from autocompile.runtime.catalogue import kind, kinds
from autocompile.search.choose.circumstances import CIRCUMSTANCES
from autocompile.search.choose.evidence import Evidence
from autocompile.search.choose.memory import baseline_memory
from autocompile.space.space import Space
from autocompile.space.usual import Feature, Usual, feature

# Measured on CPUs and published for GPUs. The spreads are wide, as these priors only order the first trials.
_SHARED: dict[Feature, Usual] = {
    feature(amp="bf16"): Usual(0.0, 0.5, cost=0.2),
    feature(amp="fp16"): Usual(0.0, 0.5, cost=0.2),
    feature(float32="tf32"): Usual(-0.2, 0.3),
    # The fused kernel is slow only backward: without it, calls of a sentence encoder were 0.93 times as fast.
    feature(attention="math"): Usual(0.05, 0.05),
    feature(amp="bf16", attention="math"): Usual(0.0, 0.05, cost_deviation=0.1),
    feature(memory_format="channels_last"): Usual(-0.1, 0.3),
    feature(optimizer="fused"): Usual(-0.08, 0.1),
    feature(optimizer="foreach"): Usual(0.0, 0.1),
    feature(optimizer="compiled"): Usual(-0.04, 0.1, cost=0.3),
    # Checkpointing adds a forward pass. Parts of a batch occupy a machine less, but fit a CPU's caches better.
    feature(activations="checkpoint"): Usual(0.25, 0.12, cost=0.1, memory=-0.5, memory_deviation=0.3),
    feature(micro_batches=2): Usual(0.08, 0.08, memory=-0.4, memory_deviation=0.25),
    feature(micro_batches=4): Usual(0.15, 0.1, memory=-0.8, memory_deviation=0.4),
}
_UNKNOWN = Usual(0.05, 0.25)


@cache
def _everywhere() -> dict[Feature, Usual]:
    """Return the usual effects on any device: of the values that all runtimes share, and of each runtime's own."""
    return {**_SHARED, **{values: usual for kind in kinds() for values, usual in kind.usual.items()}}


@cache
def _in_training(device_type: str) -> dict[Feature, Usual]:
    """Return the usual effects that differ where training steps are tuned."""
    return {values: usual for kind in kinds() for values, usual in kind.usual_in_training(device_type).items()}


# What the sum does not explain: how values interact, and how processes differ.
_NOISE, _COST_NOISE, _MEMORY_NOISE = 0.06, 0.25, 0.05
# The same for a ratio that was measured while other programs used the host: next to one busy process on two cores, a
# program that takes 0.7 times the baseline's time took 1.7 times of it (`studies/trust`, agreement).
_DISTURBED = 0.9
# The log ratio that a failed trial counts as: the values that it shares with all trials that failed in the same way are
# unlikely to help, alone or together.
_FAILED = 0.7
_FIRST_TRIAL_S = 3.5


def _usual(values: Feature, evidence: Evidence) -> tuple[Usual, str]:
    """Return the usual effect in these circumstances, and the reason if they make a difference."""
    for circumstance in reversed(CIRCUMSTANCES):
        usual = circumstance.usual.get(values)
        if usual is not None and circumstance.holds(evidence):
            return usual, circumstance.reason(evidence)
    particular = _in_training(evidence.device_type) if evidence.trains else {}
    return particular.get(values) or _everywhere().get(values, _UNKNOWN), ""


@dataclass(frozen=True)
class Expected:
    """A prediction: the mean of a logarithm, and its standard deviation."""

    mean: float
    deviation: float


class _Linear:
    """One of the three models."""

    def __init__(self, means: Sequence[float], deviations: Sequence[float], noise: float) -> None:
        self._precision = np.diag([1 / d**2 for d in deviations])
        self._weighted = self._precision @ np.array(means)
        self._noise = noise
        self._covariance: NDArray[np.float64] | None = None

    def learn(self, features: NDArray[np.float64], observed: float, noise: float | None = None) -> None:
        """Add an observation, with the standard deviation of its own noise if that is not the usual one."""
        variance = (self._noise if noise is None else noise) ** 2
        self._covariance = None
        self._precision += np.outer(features, features) / variance
        self._weighted += features * observed / variance

    def predict(self, features: NDArray[np.float64]) -> Expected:
        """Predict the value for these features."""
        if self._covariance is None:
            self._covariance = np.linalg.inv(self._precision)
        mean = float(features @ self._covariance @ self._weighted)
        return Expected(mean, math.sqrt(float(features @ self._covariance @ features) + self._noise**2))


class Forecast:
    """Predictions for the candidates of one space, given the circumstances and the trials so far.

    Each candidate that is still `out` is treated as if its prediction had been measured. This changes no prediction,
    but reduces the uncertainty of all candidates that share its values.
    """

    def __init__(
        self, space: Space, evidence: Evidence, trials: Sequence[Trial], out: Sequence[Candidate] = ()
    ) -> None:
        chosen = [(d.name, v) for d in space.dimensions for v in space.open_values[d.name] if v != space.default(d)]
        pairs = [values for values in _everywhere() if len(values) > 1 and values <= set(chosen)]
        self._space = space
        self._places = {values: place for place, values in enumerate([*(frozenset([c]) for c in chosen), *pairs])}
        self._reasons = {values: _usual(values, evidence)[1] for values in self._places}
        priors = [_usual(values, evidence)[0] for values in self._places]
        self._ratio = _Linear([u.effect for u in priors], [u.deviation for u in priors], _NOISE)
        self._cost = _Linear([u.cost for u in priors], [u.cost_deviation for u in priors], _COST_NOISE)
        self._memory = _Linear([u.memory for u in priors], [u.memory_deviation for u in priors], _MEMORY_NOISE)
        self._first_s = next((_seconds(trial) for trial in trials if trial.origin == "baseline"), _FIRST_TRIAL_S)
        baseline_bytes = baseline_memory(trials)
        for trial in trials:
            features = self._features(trial.candidate)
            if trial.measurement is not None:
                noise = _DISTURBED if trial.measurement.contamination.noisy else _NOISE
                self._ratio.learn(features, math.log(trial.measurement.ratio.value), noise)
                self._cost.learn(features, math.log(_seconds(trial) / self._first_s))
                if baseline_bytes and trial.measurement.peak_memory_bytes:
                    self._memory.learn(features, math.log(trial.measurement.peak_memory_bytes / baseline_bytes))
            elif _tells_of_values(trial.outcome):
                self._ratio.learn(self._of(self._suspects(trial, trials)), _FAILED)
        for candidate in out:
            self._ratio.learn(self._features(candidate), self.ratio(candidate).mean)

    def ratio(self, candidate: Candidate) -> Expected:
        """Return the logarithm of its time over the baseline's."""
        return self._ratio.predict(self._features(candidate))

    def seconds(self, candidate: Candidate) -> float:
        """Return the seconds that its trial takes, start-up included."""
        return self._first_s * math.exp(self._cost.predict(self._features(candidate)).mean)

    def memory(self, candidate: Candidate) -> Expected:
        """Return the logarithm of its peak memory over the baseline's."""
        return self._memory.predict(self._features(candidate))

    def reasons(self, candidate: Candidate) -> list[str]:
        """Return which circumstances were taken into account, in words."""
        here = zip(self._places, self._features(candidate), strict=True)
        return list(dict.fromkeys(self._reasons[values] for values, is_on in here if is_on and self._reasons[values]))

    def _features(self, candidate: Candidate) -> NDArray[np.float64]:
        return self._of(self._changes(candidate))

    def _of(self, changes: set[tuple[str, Value]]) -> NDArray[np.float64]:
        return np.array([float(values <= changes) for values in self._places])

    def _changes(self, candidate: Candidate) -> set[tuple[str, Value]]:
        changes = set(self._space.changes(candidate).items())
        akin = _akin(str(candidate["runtime"]))
        return changes | {("runtime", akin)} if akin else changes

    def _suspects(self, failed: Trial, trials: Sequence[Trial]) -> set[tuple[str, Value]]:
        """Return the values that may have caused a failure: those that all trials with the same failure share.

        The runtime is always one of them, because it decides what the other values do. If a trial with all of these
        values was measured, the common failure has other causes, and all values of the failed trial are suspect.
        """
        own, fault = self._changes(failed.candidate), _fault_of(failed)
        alike = [self._changes(one.candidate) for one in trials if fault and _fault_of(one) == fault]
        shared = {one for one in own if one[0] == "runtime" or all(one in other for other in alike)}
        refuted = any(shared <= self._changes(one.candidate) for one in trials if one.measurement is not None)
        return own if refuted else shared


@cache
def _akin(runtime: str) -> str:
    """Return the runtime that uses the same compiler, or ""."""
    return kind(runtime).akin


def _tells_of_values(outcome: Outcome) -> bool:
    """Whether an outcome is a failure that speaks against the trial's values.

    A failure whose cause is known closes the candidates that it concerns (`alike.py`), and tells nothing of others.
    """
    return isinstance(outcome, Failure) and outcome.kind != "timeout" and not outcome.cause


def _fault_of(trial: Trial) -> tuple[str, str] | None:
    """Return kind and message of a failure, unless different causes lead to the same message."""
    outcome = trial.outcome
    if not isinstance(outcome, Failure) or outcome.kind in ("crash", "out_of_memory"):
        return None
    return outcome.kind, outcome.message


def _seconds(trial: Trial) -> float:
    """Return the seconds that the trial took, start-up included."""
    return sum(trial.outcome.phases_s.values()) or _FIRST_TRIAL_S
