"""Try batch sizes in eager, before compiling: whether samples are independent, which sizes fit, and their time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch

from autocompile.core.job import BatchPoint, BatchProbe, BatchTask
from autocompile.core.plan import Plan
from autocompile.runtime.building import built
from autocompile.trial.check.batch_proof import BatchProof, prove_batch
from autocompile.trial.clock.timing import Subject, subject
from autocompile.trial.faults import failure_of
from autocompile.trial.phases import Phases
from autocompile.workload.axes import first_axes, leaves_of
from autocompile.workload.samples import Sample
from autocompile.workload.spool import at_batch, unspool_step
from autocompile.workload.step import Step
from autocompile.workload.training.step import TrainingStep

_REPEATS, _ENOUGH_S = 5, 0.5
_LARGEST = 1 << 14
# Try the next size only if the remaining time is this many times what the last size took.
_AHEAD = 4
# In training, the first size to try is the given batch size divided by this.
_SMALLER = 4
# Keep doubling while the time per sample falls below this share of the previous one, at this size or at the last.
_WORTH_DOUBLING = 0.97


def probe_batches(task: BatchTask, phases: Phases) -> BatchProbe:
    """Prove that a call's samples are independent, then time the requested sizes, or double until it no longer pays.

    A size that runs out of memory is recorded with its problem, and ends the search.
    """
    with phases("load"):
        step, samples = unspool_step(task.workload)
        device = task.workload.device_type
        eager = built(step, Plan())
    with phases("verify"):
        proofs = [_proof(eager, sample) for sample in samples]
    problem = next((proof.problem for proof in proofs if proof.problem), "")
    given = proofs[0].size
    if problem or any(proof.size != given for proof in proofs):
        return BatchProbe(given, problem or "the samples already have different batch sizes", ())
    trains = isinstance(eager, TrainingStep)
    points: tuple[BatchPoint, ...] = ()
    with eager.preserved():
        while size := _next_size(task, points, first=max(1, given // _SMALLER) if trains else 1):
            began = time.perf_counter()
            with phases(f"batch {size}"):
                probed = subject(eager, at_batch(samples, size), device, torch.get_num_threads())
                points = (*points, _point(size, probed, phases))
            too_small = trains and size < given  # such as for batch statistics
            if points[-1].problem and not too_small:
                break
            if phases.left_s < _AHEAD * (time.perf_counter() - began):
                break
    return BatchProbe(given, "", points)


def _proof(eager: Step, sample: Sample) -> BatchProof:
    """Return how many samples the call holds, if they are proved to be independent.

    A training step only has to have a batch axis: it learns something different from another batch anyway, and each
    batch size gets its own reference.
    """
    if not isinstance(eager, TrainingStep):
        return prove_batch(eager, sample)
    sizes = sorted({leaves_of(sample)[leaf].shape[axis] for leaf, axis in first_axes(sample)})
    if len(sizes) != 1:
        return BatchProof(problem=f"the first axes of a batch's tensors differ in size: {sizes}")
    return BatchProof(sizes[0], first_axes(sample))


def _next_size(task: BatchTask, points: Sequence[BatchPoint], *, first: int) -> int:
    """Return the size to try after these points, or 0 if there is none."""
    last = points[-1].size if points else 0
    if task.sizes:
        return min((size for size in task.sizes if last < size < (task.below or math.inf)), default=0)
    size = 2 * last or first
    if size >= (task.below or _LARGEST + 1) or (len(points) > 2 and _saturated(points)):
        return 0
    return size


def _saturated(points: Sequence[BatchPoint]) -> bool:
    *_, before, last, latest = (point.sample_ms or math.inf for point in points)
    return last > _WORTH_DOUBLING * before and latest > _WORTH_DOUBLING * last


def _point(size: int, probed: Subject, phases: Phases) -> BatchPoint:
    """Return the best of a few calls. It bounds how fast this size can be; it is not a measurement to decide by."""
    try:
        began, passes = time.perf_counter(), [probed.one_pass()]
        while len(passes) < _REPEATS and time.perf_counter() - began < _ENOUGH_S:
            passes.append(probed.one_pass())
    except Exception as fault:
        return BatchPoint(size, None, failure_of(fault, phases).message)
    return BatchPoint(size, min(passes) * 1e3 / (size * len(probed.samples)), "")
