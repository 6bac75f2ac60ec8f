"""Which batch sizes cannot keep a limit on latency, by what a call takes in eager and the speed-ups so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from autocompile.core.goal import Goal
from autocompile.core.trial import Trial
from autocompile.core.units import format_ms
from autocompile.search.judge.contender import baseline_seconds

# Before anything compiled was measured, no more than this is expected of compiling; then so many times the best so far.
_EXPECTED, _MARGIN = 4.0, 1.5


def beyond_limit(goal: Goal, eager_ms: Mapping[int, float], trials: Sequence[Trial]) -> dict[tuple[int, bool], str]:
    """By batch size, and whether it is compiled: the reason why nothing of that kind can keep `max_latency`.

    `eager_ms`: what a call takes in eager at its best, by size. In eager, a size is tried only if that, sped up as
    much as any eager candidate was so far, keeps the limit. Compiled, the benefit of the doubt is given: the best
    speed-up so far, of this size if there is any, and half as much again.
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
    """The highest speed-up over eager of the same size that is thought possible, and what that is taken from."""
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
        return _EXPECTED, f", and more than {_EXPECTED:.0f}x is not expected of compiling"
    where = "of this size" if of_this_size else "so far"
    return _MARGIN * max(1.0, best), f", and the best speed-up {where} is {best:.1f}x, far too little"


def _speed_up(trial: Trial, eager_ms: Mapping[int, float], trials: Sequence[Trial]) -> float | None:
    """Over eager of the same size; None where that is not known."""
    if trial.measurement is None:
        return None
    if not trial.plan.batch:
        return 1 / trial.measurement.ratio.value
    each_ms = eager_ms.get(trial.plan.batch)
    baseline_ms = baseline_seconds([t for t in trials if t.measurement]) * 1e3
    return each_ms and each_ms / (trial.measurement.ratio.value * trial.batch_factor * baseline_ms)
