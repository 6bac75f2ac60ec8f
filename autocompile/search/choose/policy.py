"""The agent's policy: what is worth its seconds next, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.candidate import Candidate, Value
from autocompile.core.outcome import Failure
from autocompile.core.plan import EAGER
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind_of
from autocompile.search.choose.forecast import Expected, Forecast
from autocompile.space.space import Space

# What a value has to be slower by in eager, beyond noise, to be left out of what is compiled.
_HOPELESS = 1.5
# These can be tried in eager, which tells about what is compiled.
_PROBED = ("amp", "float32", "memory_format", "threads")


@dataclass(frozen=True)
class Proposal:
    """What to try next, and the reason in words; `is_last_chance`: there would not be the time for it later."""

    candidate: Candidate
    reason: str
    is_last_chance: bool = False


@dataclass(frozen=True)
class Dropped:
    """A value that is not compiled, the reason, and the seconds that this saves as far as can be told."""

    dimension: str
    value: Value
    reason: str
    saved_s: float


def probes(space: Space, candidate: Candidate) -> list[Candidate]:
    """What tells in eager about a candidate that is compiled: each of its values alone that can be tried so."""
    if space.plan(candidate).is_eager:
        return []
    changes = space.changes(candidate)
    return [space.candidate(runtime=EAGER, **{name: changes[name]}) for name in _PROBED if name in changes]


def dropped(forecast: Forecast, space: Space, trials: Sequence[Trial], untried: Sequence[Candidate]) -> list[Dropped]:
    """Values with candidates left that eager showed to be hopeless here: much slower, or wrong."""
    hopeless = []
    for trial in trials:
        changes = space.changes(trial.candidate)
        if not trial.plan.is_eager or len(changes) != 1:
            continue
        (dimension, value), *_ = changes.items()
        reason = _hopeless(trial) if dimension in _PROBED else ""
        saved_s = sum(forecast.seconds(c) for c in untried if c[dimension] == value) if reason else 0.0
        if saved_s:
            hopeless.append(Dropped(dimension, value, reason, saved_s))
    return hopeless


def _hopeless(trial: Trial) -> str:
    if isinstance(trial.outcome, Failure):
        return trial.outcome.message.splitlines()[0] if trial.outcome.kind == "wrong_result" else ""
    ratio = trial.outcome.ratio
    return f"{ratio.value:.1f} times slower in eager" if ratio.low > _HOPELESS else ""


@dataclass(frozen=True)
class Stakes:
    """Whom to beat, and what start-up counts: `best` is the amortized log ratio to the baseline of the best so far.

    `whole_s` is how long all calls of a process would take the baseline. What a compiled candidate takes once is what
    its trial takes, which is compiling above all; so many `processes` share that. `memory`: the limit on the peak as a
    log ratio to the baseline's, infinity without one; `keeps_memory`: whether anything measured so far keeps it.
    """

    best: float
    whole_s: float
    processes: int = 1
    memory: float = math.inf
    keeps_memory: bool = True


def choose(
    forecast: Forecast,
    space: Space,
    untried: Sequence[Candidate],
    stakes: Stakes,
    out: Sequence[Candidate] = (),
    *,
    left_s: float = math.inf,
) -> Proposal:
    """The candidate with the most expected improvement of the amortized time for each second that its trial takes.

    Expected improvement over the best so far (Mockus 1978; Jones et al. 1998), per unit of cost (Snoek et al. 2012).
    What is still `out` is believed to become what it is expected to be (the kriging believer: Ginsbourger et al. 2010):
    the best so far may be one of these, and the forecast has learned of them. A candidate waits for an answer that is
    out of one of its values in eager, unless there is nothing else to try. Where memory is limited, the improvement
    counts as far as it is likely to keep the limit; while nothing keeps it, that likelihood alone counts (Gardner et
    al. 2014). What is expected to be the fastest of all is taken at once where it would not fit any more into the
    `left_s` seconds after that: the most for each second, one by one, may leave no time for the most.
    """
    ready = [c for c in untried if not (out and any(probe in out for probe in probes(space, c)))]
    predicted = []
    for candidate in (*out, *(ready or untried)):
        seconds = forecast.seconds(candidate)
        startup_s = 0.0
        if kind_of(space.plan(candidate)).compiles:
            startup_s = seconds / stakes.processes
        predicted.append((_with_startup(forecast.ratio(candidate), startup_s / stakes.whole_s), seconds, candidate))
    best = min([stakes.best, *(expected.mean for expected, _seconds, _candidate in predicted[: len(out)])])

    def worth(prediction: tuple[Expected, float, Candidate]) -> float:
        expected, seconds, candidate = prediction
        gain = _improvement(expected, best) if stakes.keeps_memory else 1.0
        return gain * _chance(forecast, candidate, stakes.memory) / seconds

    expected, seconds, candidate = max(predicted[len(out) :], key=worth)
    most = "the highest expected gain for its time" if stakes.keeps_memory else "the likeliest to keep max_memory"
    fastest = min(predicted[len(out) :], key=lambda prediction: prediction[0].mean)
    is_fastest = stakes.keeps_memory and fastest[0].mean < min(best, expected.mean)
    is_last_chance = is_fastest and seconds + fastest[1] > left_s
    if is_last_chance:
        expected, seconds, candidate = fastest
        most = (
            f"the highest expected gain, with no time for it after anything else in the {format_duration(left_s)} left"
        )
    speed = math.exp(-expected.mean)
    reason = (
        f"expected {speed:.2f}x (±{expected.deviation:.0%}) for some {format_duration(seconds)}: "
        f"{most}, of {len(untried)} untried"
    )
    return Proposal(candidate, "; ".join([reason, *forecast.reasons(candidate)]), is_last_chance)


def _chance(forecast: Forecast, candidate: Candidate, limit: float) -> float:
    """That its peak memory keeps the limit."""
    if math.isinf(limit):
        return 1.0
    expected = forecast.memory(candidate)
    return _below((limit - expected.mean) / expected.deviation)


def _with_startup(expected: Expected, startup: float) -> Expected:
    """The amortized log ratio; `startup` is in units of the baseline's whole time, and only the latency varies."""
    ratio = math.exp(expected.mean)
    return Expected(math.log(ratio + startup), expected.deviation * ratio / (ratio + startup))


def _improvement(expected: Expected, best: float) -> float:
    z = (best - expected.mean) / expected.deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return (best - expected.mean) * _below(z) + expected.deviation * density


def _below(z: float) -> float:
    """The share of a standard normal distribution that lies below."""
    return math.erfc(-z / math.sqrt(2)) / 2
