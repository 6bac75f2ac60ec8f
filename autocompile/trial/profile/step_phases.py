"""Measure how the time of a step is divided among its phases."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from autocompile.core.step_profile import Phase
from autocompile.trial.clock.devices import DEVICES
from autocompile.trial.profile.marks import spans_of
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step

_MOST_STEPS, _LOOKING_S = 20, 0.5


def phase_shares(step: Step, sample: Sample, device: str) -> dict[Phase, float]:
    """Return the share of each phase in 0..1, in the order in which they begin; empty if the step has no phases.

    The shares add up to 1. They are medians over the steps that fit into half a second (at least 1, at most 20), so
    that a pause in one step does not matter. On a GPU, the device's own clock is read, so no synchronization is needed.
    """
    looks: list[Mapping[Phase, float]] = []
    ends = time.perf_counter() + _LOOKING_S
    while not looks or (len(looks) < _MOST_STEPS and time.perf_counter() < ends):
        looks.append(_look(step, sample, device))
    taken = {phase: median(look[phase] for look in looks) for phase in looks[0]}
    whole = sum(taken.values())
    return {phase: seconds / whole for phase, seconds in taken.items()} if whole else {}


def _look(step: Step, sample: Sample, device: str) -> dict[Phase, float]:
    """Return the seconds of each phase in one step."""
    on = DEVICES[device]
    with spans_of(step, on.stamp) as spans:
        step.run(sample)
    on.synchronize()
    taken: dict[Phase, float] = defaultdict(float)
    for span in spans:
        taken[span.phase] += on.elapsed_s(span.start, span.end)
    return dict(taken)
