"""Batch sizes in eager, before anything is compiled: whether samples are independent, what fits, what it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import torch

from autocompile.core.job import BatchPoint, BatchProbe, BatchTask
from autocompile.core.plan import Plan
from autocompile.runtime.building import build
from autocompile.trial.check.batch_proof import prove_batch
from autocompile.trial.check.reference import preserved_buffers
from autocompile.trial.clock.timing import Subject, subject
from autocompile.trial.faults import failure_of
from autocompile.trial.phases import Phases
from autocompile.workload.spool import at_batch, unspool

_REPEATS, _ENOUGH_S = 5, 0.5
_LARGEST = 1 << 14
# The next size is tried if so many times what the last one took is left.
_AHEAD = 4
# Doubling goes on while it still saves this much a sample, or did at the size before.
_WORTH_DOUBLING = 0.97


def probe_batches(task: BatchTask, phases: Phases) -> BatchProbe:
    """Prove that samples are independent, then time the sizes asked for, or double until it does not pay any more.

    A size for which memory runs out is kept as such, and ends it.
    """
    with phases("load"):
        model, samples = unspool(task.workload)
        device = task.workload.device_type
        eager = build(model, Plan(), device)
    with phases("verify"):
        proofs = [prove_batch(eager, sample) for sample in samples]
    problem = next((proof.problem for proof in proofs if proof.problem), "")
    given = proofs[0].size
    if problem or any(proof.size != given for proof in proofs):
        return BatchProbe(given, problem or "the samples are of different batch sizes already", ())
    points: list[BatchPoint] = []
    with preserved_buffers(eager):
        for size in _sizes(task, points):
            began = time.perf_counter()
            with phases(f"batch {size}"):
                one = subject(eager, at_batch(samples, size), device, torch.get_num_threads())
                points.append(_point(size, one, phases))
            if points[-1].problem or phases.left_s < _AHEAD * (time.perf_counter() - began):
                break
    return BatchProbe(given, "", tuple(points))


def _sizes(task: BatchTask, points: Sequence[BatchPoint]) -> Iterator[int]:
    """What to try next, given what was found so far."""
    if task.sizes:
        yield from (size for size in sorted(task.sizes) if size < (task.below or math.inf))
        return
    size = 1
    while size < (task.below or _LARGEST + 1) and not (len(points) > 2 and _saturated(points)):
        yield size
        size *= 2


def _saturated(points: Sequence[BatchPoint]) -> bool:
    *_, before, last, latest = (point.sample_ms or math.inf for point in points)
    return last > _WORTH_DOUBLING * before and latest > _WORTH_DOUBLING * last


def _point(size: int, one: Subject, phases: Phases) -> BatchPoint:
    """The best of a few calls: a bound for what this size can be, not a figure to judge by."""
    try:
        began, passes = time.perf_counter(), [one.one_pass()]
        while len(passes) < _REPEATS and time.perf_counter() - began < _ENOUGH_S:
            passes.append(one.one_pass())
    except Exception as fault:
        return BatchPoint(size, None, failure_of(fault, phases).message)
    return BatchPoint(size, min(passes) * 1e3 / (size * len(one.samples)), "")
