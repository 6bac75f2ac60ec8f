"""Batch sizes that cannot meet a limit on latency, judged by eager's time per call and the speed-ups so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from autocompile.core.goal import Goal
from autocompile.core.trial import Trial
from autocompile.core.units import format_ms
from autocompile.search.judge.contender import baseline_seconds

# The speed-up that is thought possible: _EXPECTED before anything compiled was measured, then _MARGIN times the best so
# far.
_EXPECTED, _MARGIN = 4.0, 1.5


def beyond_limit(goal: Goal, eager_ms: Mapping[int, float], trials: Sequence[Trial]) -> dict[tuple[int, bool], str]:
    """Return, by batch size and whether it is compiled, why no such candidate can meet `max_latency`.

    `eager_ms`: the best time of a call in eager, by size. In eager, a size is tried only if that time, divided by the
    best speed-up of any eager candidate so far, meets the limit. Compiled candidates are judged more generously: by one
    and a half times the best speed-up so far, of this size if there is one.
    """
    limit_ms = goal.entry().max_latency_ms
    if limit_ms is None:
        return {}
    reasons: dict[tuple[int, bool], str] = {}
    for (size, each_ms), compiles in product(eager_ms.items(), (False, True)):
        speed, words = _most(size, eager_ms, trials, compiles=compiles)
        if each_ms > limit_ms * speed:
            reason = f"{format_ms(each_ms)} a call in eager{words}: beyond max_latency {format_ms(limit_ms)}"
            reasons[size, compiles] = reason
    return reasons


def _most(size: int, eager_ms: Mapping[int, float], trials: Sequence[Trial], *, compiles: bool) -> tuple[float, str]:
    """Return the highest speed-up over eager of the same size that is thought possible, and the source in words."""
    known = [
        (trial.plan.batch, speed)
        for trial in trials
        if trial.plan.is_eager != compiles and (speed := _speed_up(trial, eager_ms, trials)) is not None
    ]
    of_this_size = [speed for batch, speed in known if batch == size]
    best = max(of_this_size or [speed for _batch, speed in known], default=None)
    if not compiles:
        return (1.0, "") if best is None or best <= 1.0 else (best, f", and the best speed-up in eager is {best:.1f}x")
    if best is None:
        return _EXPECTED, f", and compiling is not expected to give more than {_EXPECTED:.0f}x"
    where = "of this size" if of_this_size else "so far"
    return _MARGIN * max(1.0, best), f", and the best speed-up {where} is {best:.1f}x, far too little"


def _speed_up(trial: Trial, eager_ms: Mapping[int, float], trials: Sequence[Trial]) -> float | None:
    """Return the speed-up over eager of the same size; None where that is not known."""
    if trial.measurement is None:
        return None
    if not trial.plan.batch:
        return 1 / trial.measurement.ratio.value
    each_ms = eager_ms.get(trial.plan.batch)
    baseline_ms = baseline_seconds([t for t in trials if t.measurement]) * 1e3
    return each_ms and each_ms / (trial.measurement.ratio.value * trial.batch_factor * baseline_ms)
