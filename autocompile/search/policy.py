"""The agent's policy: what is worth its seconds next, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import norm

from autocompile.core.candidate import Candidate, Value
from autocompile.core.outcome import Failure
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.search.forecast import Expected, Forecast
from autocompile.space.backends import EAGER
from autocompile.space.space import Space

# What a value has to be slower by in eager, beyond noise, to be left out of what is compiled.
_HOPELESS = 1.5
# These can be tried in eager, which tells about what is compiled.
_PROBED = ("amp", "memory_format", "threads")


@dataclass(frozen=True)
class Choice:
    """What to try next, and the reason in words."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True)
class Dropped:
    """A value that is not compiled, the reason, and the seconds that this saves as far as can be told."""

    dimension: str
    value: Value
    reason: str
    saved_s: float


def probes(space: Space, candidate: Candidate) -> list[Candidate]:
    """What tells in eager about a candidate that is compiled: each of its values alone that can be tried so."""
    if not space.plan(candidate).compiles:
        return []
    changes = space.changes(candidate)
    return [space.candidate(backend=EAGER, **{name: changes[name]}) for name in _PROBED if name in changes]


def dropped(forecast: Forecast, space: Space, trials: Sequence[Trial], untried: Sequence[Candidate]) -> list[Dropped]:
    """Values that eager showed to be hopeless here: much slower, or wrong."""
    found = []
    for trial in trials:
        changes = space.changes(trial.candidate)
        if trial.plan.compiles or len(changes) != 1:
            continue
        (dimension, value), *_ = changes.items()
        reason = _hopeless(trial)
        if reason:
            saved_s = sum(forecast.seconds(one) for one in untried if one[dimension] == value)
            found.append(Dropped(dimension, value, reason, saved_s))
    return found


def _hopeless(trial: Trial) -> str:
    if isinstance(trial.outcome, Failure):
        return trial.outcome.message.splitlines()[0] if trial.outcome.kind == "wrong_result" else ""
    ratio = trial.outcome.ratio
    return f"{ratio.value:.1f} times slower in eager" if ratio.low > _HOPELESS else ""


def choose(
    forecast: Forecast, trials: Sequence[Trial], untried: Sequence[Candidate], *, calls: float, baseline_s: float
) -> Choice:
    """The candidate with the most expected improvement of the amortized time for each second that its trial takes.

    Expected improvement over the best so far (Mockus 1978; Jones et al. 1998), per unit of cost (Snoek et al. 2012).
    """
    whole_s = calls * baseline_s
    best = min(
        (_amortized(t.measurement.ratio.value, t.startup_s, whole_s) for t in trials if t.measurement), default=0.0
    )
    scored = []
    for candidate in untried:
        seconds = forecast.seconds(candidate)
        expected = _with_startup(forecast.ratio(candidate), seconds, whole_s)
        scored.append((_improvement(expected, best) / seconds, expected, seconds, candidate))
    _gain, expected, seconds, candidate = max(scored, key=lambda one: one[0])
    speed = math.exp(-expected.mean)
    reason = (
        f"expected {speed:.2f}x (±{expected.deviation:.0%}) for some {format_duration(seconds)}: "
        f"the most gain for a second of {len(untried)} untried"
    )
    return Choice(candidate, "; ".join([reason, *forecast.reasons(candidate)]))


def _with_startup(expected: Expected, seconds: float, whole_s: float) -> Expected:
    """The amortized ratio: start-up is nearly all that a trial of something compiled takes."""
    return Expected(_amortized(math.exp(expected.mean), seconds, whole_s), expected.deviation)


def _amortized(ratio: float, startup_s: float, whole_s: float) -> float:
    """The logarithm of a ratio to the baseline with start-up spread over `whole_s` seconds of the baseline's calls."""
    return math.log(ratio + startup_s / whole_s)


def _improvement(expected: Expected, best: float) -> float:
    z = (best - expected.mean) / expected.deviation
    return float((best - expected.mean) * norm.cdf(z) + expected.deviation * norm.pdf(z))
