"""Check a candidate on sizes that no sample has: whether its results are correct, and whether it recompiles."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autocompile.core.job import TrialTask
from autocompile.runtime.building import runtime
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import make_reference
from autocompile.trial.check.sizes import Size, SizesTask, taken_once
from autocompile.trial.faults import is_recompile
from autocompile.workload.axes import FreeAxis, Place, free_axes, resized
from autocompile.workload.capture.script import describe_fault
from autocompile.workload.forms import by_form
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step

# The places (leaf, axis) of a sample that get another size, and that size.
_Resizing = tuple[frozenset[Place], int]
# The share of the remaining time that the model's own calls, including those in float64, may take.
_WORTH_ITS_TIME = 0.25


@dataclass(frozen=True)
class Unseen:
    """The result of calls with unseen sizes.

    `tried`: how many calls were tried. `compiled_again`: for how many of them the candidate would recompile. `fault`:
    what was wrong, or "". `captured`: for how many calls it captured another CUDA graph.
    """

    tried: int = 0
    compiled_again: int = 0
    fault: str = ""
    captured: int = 0


def probe_unseen(
    candidate: Step, baseline: Step, samples: Sequence[Sample], task: TrialTask, *, left_s: float, random: bool
) -> Unseen:
    """Call the candidate once for each axis along which the samples differ, with a size between theirs that none has.

    Call this while recompiling is forbidden (`torch.compiler.set_stance("fail_on_recompile")`). Samples of several
    forms are not probed, and neither are sizes that the model itself does not accept. With a metric, the errors of the
    outputs are not judged, as there is no sample to apply the metric to. `random`: whether both steps draw random
    numbers (the same ones).

    On a GPU, a separate process finds out which sizes the model accepts, as a wrong size may crash the process.
    """
    if len(by_form(samples)) != 1:
        return Unseen()
    tried = again = captured = 0
    counters = runtime(task.plan.runtime).counters
    ends = time.monotonic() + left_s
    for places, size in _taken(task, _between_samples(samples), _WORTH_ITS_TIME * left_s):
        sample, left_s = resized(samples[0], places, size), ends - time.monotonic()
        began = time.monotonic()
        try:
            reference = make_reference(baseline, (sample,), variants=0, seed=task.seed, random=random)
        except Exception:  # noqa: S112  a size that the model itself does not accept need not work
            continue
        if time.monotonic() - began > _WORTH_ITS_TIME * left_s:
            break
        tried += 1
        graphs = counters().captures
        try:
            compared = compare(candidate, reference, task.acceptance)
        except Exception as fault:
            if not is_recompile(fault):
                told = f"for size {size}, which no sample has, it fails: {describe_fault(fault)}"
                return Unseen(tried, again, told, captured)
            again += 1
            continue
        captured += counters().captures > graphs
        if compared.fault and not (task.acceptance.metric and compared.by_figure):
            return Unseen(tried, again, f"for size {size}, which no sample has, {compared.fault}", captured)
    return Unseen(tried, again, captured=captured)


def _between_samples(samples: Sequence[Sample]) -> list[_Resizing]:
    sizes = [(axis.places, _between(axis)) for axis in free_axes(samples, frozenset())]
    return [(places, size) for places, size in sizes if size]


def _taken(task: TrialTask, between: Sequence[_Resizing], limit_s: float) -> Sequence[_Resizing]:
    """Return the sizes that can be tried in this process: on a CPU all of them, as a wrong size raises an exception."""
    if not between or task.workload.device_type == "cpu":
        return between
    sizes = tuple(Size(tuple(sorted(places)), size) for places, size in between)
    taken = taken_once(SizesTask(task.workload, task.plan.batch, 0, sizes), limit_s)
    return [one for one, is_taken in zip(between, taken, strict=True) if is_taken]


def _between(axis: FreeAxis) -> int:
    """Return the middle of the widest gap between the sizes seen, or 0 if there is no gap."""
    gaps = [(high - low, (high + low) // 2) for low, high in pairwise(sorted(set(axis.seen))) if high - low > 1]
    return max(gaps)[1] if gaps else 0
