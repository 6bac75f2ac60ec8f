"""A first profile: what the baseline does, before anything is searched."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from autocompile.core.errors import InvalidWorkload
from autocompile.core.estimate import Estimate
from autocompile.core.job import Acceptance, ProfileTask
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.trial import diagnosis
from autocompile.trial.graphbreaks import graph_breaks
from autocompile.trial.kernels import kernels_of
from autocompile.trial.memory import peak_memory_bytes
from autocompile.trial.nvml import utilization
from autocompile.trial.phases import Phases
from autocompile.trial.repeatability import Repeatability, repeatability
from autocompile.trial.timing import OnCopies, Pairs, Subject, subject, time_pairs
from autocompile.trial.verify import verify
from autocompile.workload.blocks import repeated_blocks
from autocompile.workload.build import Built, build
from autocompile.workload.metric import unspool_metric
from autocompile.workload.reference import Reference, make_reference
from autocompile.workload.samples import Sample
from autocompile.workload.spool import unspool

_PROFILED_CALLS = 3
_VARIANTS = 2
_LONGEST_TRACE_S = 600.0
# For reading, half a minute and some twenty calls have to do: so much for tracing, so much for a pass over the samples.
_BRIEF_TRACE_S, _PASS_S = 6.0, 0.5
_WARM_S = 0.5


def take_profile(task: ProfileTask, phases: Phases) -> Profile:
    """Profile the baseline and leave the float64 reference behind.

    Raises whatever the model raises on its own inputs, and InvalidWorkload if it cannot be profiled.
    """
    full, device = task.depth == "full", task.workload.device_type
    with phases("load"):
        model, samples = unspool(task.workload)
        eager = build(model, Plan(), device)
    with phases("verify"):
        repeats = repeatability(model, samples[0], task.seed)
        _check_children(repeats, full=full)
        shown = _affordable(samples, repeats.call_s) if full else samples
        reference, floor = _reference(task, model, eager, shown)
    with phases("timing"):
        timed = OnCopies(eager) if reference.mutates_inputs else eager
        steady = _time_baseline(timed, shown, device, task)
    with phases("profile"):
        calls = _PROFILED_CALLS if repeats.call_s < _PASS_S else 1
        kernels = kernels_of(eager, shown[0], device, calls)
        memory = peak_memory_bytes(device)
        limit_s = _BRIEF_TRACE_S if full else min(max(phases.left_s / 3, _BRIEF_TRACE_S), _LONGEST_TRACE_S)
        traced = graph_breaks(model, shown[0], limit_s)
        plain = Profile(
            baseline_ms=_baseline_ms(steady.pairs),
            self_ratio=steady.pairs.ratio,
            busy_share=steady.busy_share,
            busy_source=steady.busy_source,
            outside_kernels_share=kernels.outside_share,
            kernels_per_call=kernels.per_call,
            median_kernel_us=kernels.median_us,
            matrix_kernels=kernels.matrix,
            peak_memory_bytes=memory,
            graph_count=traced.graphs,
            graph_breaks=traced.breaks,
            trace_failure=traced.failure,
            blocks=repeated_blocks(model),
            deterministic=repeats.deterministic,
            random=repeats.random,
            error_floor=floor,
            reference=reference.precision,
            variants=len(reference.cases),
            notes=(
                *task.workload.notes,
                *reference.notes,
                *_notes(task, steady.pairs, repeats, mutates=reference.mutates_inputs),
                *_thinned(len(shown), len(samples)),
            ),
        )
        looked_at = diagnosis.Subject(task.workload, model, timed, shown)
        bounded, work = diagnosis.with_bound(plain, looked_at)
        return diagnosis.with_details(bounded, looked_at, work, calls) if full else bounded


def _check_children(repeats: Repeatability, *, full: bool) -> None:
    if repeats.replaced and full:
        raise InvalidWorkload(
            "is another module after every call, so nothing can be said about the model's parts",
            where=f"model.{repeats.replaced}",
            remedy="build the model's children in __init__ and only use them in forward",
        )


def _affordable(samples: Sequence[Sample], call_s: float) -> tuple[Sample, ...]:
    """Samples, evenly thinned, that one pass over takes no longer than half a second; at least one."""
    count = min(len(samples), max(1, int(_PASS_S / max(call_s, 1e-6))))
    return tuple(samples[position * len(samples) // count] for position in range(count))


def _thinned(shown: int, given: int) -> list[str]:
    return [f"{shown} of {given} samples were profiled, as all would take too long"] if shown < given else []


def _reference(task: ProfileTask, model: Any, eager: Built, samples: tuple[Sample, ...]) -> tuple[Reference, float]:
    """What is right, left in the task's file, and how far the baseline itself is from it."""
    variants = _VARIANTS if task.depth == "brief" else 0
    reference = make_reference(model, samples, variants=variants, seed=task.seed)
    reference.save(Path(task.reference), with_outputs=bool(task.metric))
    floor = verify(eager, reference, Acceptance(published_tolerance(""))).accuracy.baseline_error
    _try_metric(task.metric, reference)
    return reference, floor


def _baseline_ms(pairs: Pairs) -> Estimate:
    latency = pairs.baseline
    other = pairs.candidate
    return Estimate(
        value=statistics.mean((latency.p50_ms, other.p50_ms)),
        low=min(latency.p50_ms, other.p50_ms),
        high=max(latency.p90_ms, other.p90_ms),
    )


def _notes(task: ProfileTask, pairs: Pairs, repeats: Repeatability, *, mutates: bool) -> list[str]:
    notes = []
    if task.workload.in_training_mode:
        notes.append("the model is in training mode and was run so; call model.eval() first if it is to serve")
    if mutates:
        notes.append("the model writes into its inputs: every call gets a copy, whose cost is in all figures")
    if repeats.replaced:
        notes.append(f"model.{repeats.replaced} is another module after every call")
    if repeats.random:
        notes.append("the model is random by nature: equal inputs give other outputs from another RNG state")
    if pairs.contamination.noisy:
        share = pairs.contamination.other_cpu_share
        notes.append(f"the host is noisy: others took {share:.0%} of its CPU time during the baseline's timing")
    return notes


def _try_metric(path: str, reference: Reference) -> None:
    metric = unspool_metric(path)
    if metric is not None:
        for case in reference.cases:
            metric(case.baseline.output)


@dataclass(frozen=True)
class _Steady:
    """The baseline in steady state, and how busy the device is meanwhile."""

    pairs: Pairs
    busy_share: float
    busy_source: str


def _time_baseline(eager: Built | OnCopies, samples: Sequence[Sample], device: str, task: ProfileTask) -> _Steady:
    one: Subject = subject(eager, samples, device, torch.get_num_threads())
    twin = subject(eager, samples, device, torch.get_num_threads())
    for _ in range(3):
        if one.one_pass() > _WARM_S:
            break
    wall, cpu = time.perf_counter(), time.process_time()
    pairs = time_pairs(one, twin, task.timing, task.seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if device == "cuda":
        busy = utilization(one.one_pass, seconds=2.0)
        if busy is not None:
            return _Steady(pairs, busy, "NVML utilization over 2 s of steady state")
        return _Steady(pairs, 0.0, "unknown: NVML does not answer")
    threads = torch.get_num_threads()
    source = f"process CPU time over {threads} threads' wall time"
    return _Steady(pairs, min(1.0, cpu / (wall * threads)), source)
