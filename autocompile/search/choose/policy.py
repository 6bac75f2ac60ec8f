"""The agent's policy: which candidate is worth its seconds next, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocompile.core.candidate import Candidate, Value
from autocompile.core.outcome import Failure
from autocompile.core.plan import EAGER
from autocompile.core.trial import Trial
from autocompile.core.units import format_duration
from autocompile.runtime.catalogue import kind, kind_of
from autocompile.search.choose.forecast import Expected, Forecast
from autocompile.space.space import Space

# A value that is slower in eager by more than this factor, beyond noise, is not compiled.
_HOPELESS = 1.5
# Dimensions that can be tried in eager, with a result that informs the predictions for compiled candidates.
# Without `attention`: it pays only together with bf16, so that a trial in float32 would say little.
_PROBED = ("amp", "float32", "memory_format", "threads")


@dataclass(frozen=True)
class Proposal:
    """The candidate to try next, and the reason in words; `is_last_chance`: there would be no time for it later."""

    candidate: Candidate
    reason: str
    is_last_chance: bool = False


@dataclass(frozen=True)
class Dropped:
    """A value that is not compiled, with the reason and the estimate of the seconds that this saves.

    Runtimes that implement the value themselves may still be tried with it; `still` names those that are left.
    """

    dimension: str
    value: Value
    reason: str
    saved_s: float
    still: tuple[str, ...] = ()


def probes(space: Space, candidate: Candidate) -> list[Candidate]:
    """Return the eager trials that inform about a compiled candidate: one for each of its values that eager can try."""
    if space.plan(candidate).is_eager:
        return []
    changes = space.changes(candidate)
    return [space.candidate(runtime=EAGER, **{name: changes[name]}) for name in _PROBED if name in changes]


def dropped(forecast: Forecast, space: Space, trials: Sequence[Trial], untried: Sequence[Candidate]) -> list[Dropped]:
    """Return the values with candidates left that eager showed to be hopeless here: much slower, or wrong."""
    hopeless = []
    for trial in trials:
        changes = space.changes(trial.candidate)
        if not trial.plan.is_eager or len(changes) != 1:
            continue
        (dimension, value), *_ = changes.items()
        reason = _hopeless(trial) if dimension in _PROBED else ""
        having = [candidate for candidate in untried if candidate[dimension] == value] if reason else []
        out = [candidate for candidate in having if does_as_eager(candidate, dimension)]
        if out:
            still = dict.fromkeys(
                str(candidate["runtime"]) for candidate in having if not does_as_eager(candidate, dimension)
            )
            saved_s = sum(map(forecast.seconds, out))
            hopeless.append(Dropped(dimension, value, reason, saved_s, tuple(still)))
    return hopeless


def does_as_eager(candidate: Candidate, dimension: str) -> bool:
    """Return whether the candidate's runtime leaves the values of a dimension to torch, as eager does."""
    return dimension not in kind(str(candidate["runtime"])).does_itself


def _hopeless(trial: Trial) -> str:
    if isinstance(trial.outcome, Failure):
        return trial.outcome.message.splitlines()[0] if trial.outcome.kind == "wrong_result" else ""
    ratio = trial.outcome.ratio
    return f"{ratio.value:.1f} times slower in eager" if ratio.low > _HOPELESS else ""


@dataclass(frozen=True)
class Stakes:
    """What a candidate has to beat: `best` is the amortized log ratio to the baseline of the best candidate so far.

    `whole_s` is the time that the baseline needs for all calls of a process. The start-up of a compiled candidate is
    taken to be the time of its trial, which is mostly compiling; `processes` processes share it. `memory` is the limit
    on the peak as a log ratio to the baseline's, infinity without one. `keeps_memory` tells whether any candidate
    measured so far meets it.
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
    """Return the candidate with the most expected improvement of the amortized time per second of its trial.

    The criterion is expected improvement over the best so far (Mockus 1978; Jones et al. 1998), per unit of cost (Snoek
    et al. 2012). Candidates that are still `out` are taken to perform as predicted (the kriging believer: Ginsbourger
    et al. 2010): one of them may be the best so far, and the forecast has learned from them. A candidate waits while
    one of its values is being tried in eager, unless there is nothing else to try. Where memory is limited, the
    improvement is multiplied by the probability that the candidate meets the limit. While no candidate meets it, that
    probability alone counts (Gardner et al. 2014). The candidate with the best prediction of all is taken at once if it
    would no longer fit into the `left_s` seconds after the one with the most improvement per second: taking the cheap
    gains one by one could leave no time for the largest one.
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
    most = (
        "the highest expected improvement per second" if stakes.keeps_memory else "the most likely to meet max_memory"
    )
    fastest = min(predicted[len(out) :], key=lambda prediction: prediction[0].mean)
    is_fastest = stakes.keeps_memory and fastest[0].mean < min(best, expected.mean)
    is_last_chance = is_fastest and seconds + fastest[1] > left_s
    if is_last_chance:
        expected, seconds, candidate = fastest
        most = f"the highest expected improvement, with no time for it later, as {format_duration(left_s)} are left"
    speed = math.exp(-expected.mean)
    reason = (
        f"expected {speed:.2f}x (±{expected.deviation:.0%}) in about {format_duration(seconds)}: "
        f"{most}, among {len(untried)} untried"
    )
    return Proposal(candidate, "; ".join([reason, *forecast.reasons(candidate)]), is_last_chance)


def _chance(forecast: Forecast, candidate: Candidate, limit: float) -> float:
    """Return the probability that its peak memory meets the limit."""
    if math.isinf(limit):
        return 1.0
    expected = forecast.memory(candidate)
    return _below((limit - expected.mean) / expected.deviation)


def _with_startup(expected: Expected, startup: float) -> Expected:
    """Return the amortized log ratio; `startup` is a share of the baseline's whole time, taken to be certain."""
    ratio = math.exp(expected.mean)
    return Expected(math.log(ratio + startup), expected.deviation * ratio / (ratio + startup))


def _improvement(expected: Expected, best: float) -> float:
    z = (best - expected.mean) / expected.deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return (best - expected.mean) * _below(z) + expected.deviation * density


def _below(z: float) -> float:
    """Return the cumulative distribution function of the standard normal distribution at `z`."""
    return math.erfc(-z / math.sqrt(2)) / 2
