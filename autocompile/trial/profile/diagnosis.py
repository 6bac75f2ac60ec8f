"""Interpret a profile: what bounds the model and, in a full profile, where and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from autocompile.core.profile import Profile
from autocompile.core.step_profile import StepProfile
from autocompile.core.words import words_of
from autocompile.core.workload import Workload
from autocompile.trial.clock.devices import DEVICES
from autocompile.trial.profile.anatomy import Found, anatomy_of
from autocompile.trial.profile.ceilings import measure_ceilings
from autocompile.trial.profile.counting import Work, work_of
from autocompile.trial.profile.exportable import export_failure
from autocompile.trial.profile.graphbreaks import recompiles
from autocompile.trial.profile.hotspots import hottest
from autocompile.trial.profile.kernels import Kernels
from autocompile.trial.profile.roofline import Figures, bound_of
from autocompile.workload.call import Call
from autocompile.workload.capture.script import describe_fault
from autocompile.workload.samples import Sample, describe
from autocompile.workload.step import Step
from autocompile.workload.training.step import TrainingStep

_RECOMPILES_S, _EXPORT_S = 3.0, 5.0
_LATENCY_S = 0.3
_MOST_SIGNATURES = 4


@dataclass(frozen=True)
class Examined:
    """The object of a diagnosis: a step as given, its kernels, and its samples, of which the first is analyzed."""

    workload: Workload
    step: Step
    samples: Sequence[Sample]
    kernels: Kernels


def with_bound(profile: Profile, examined: Examined) -> Profile:
    """Add what bounds a call of the first sample, from its work and the peak performance of this device."""
    work, problem = _work(examined)
    pipeline = examined.workload.pipeline
    try:
        figures = _figures(profile, examined, work)
    except RuntimeError as fault:  # the device has too little free memory for the measurement
        told = f"the ceilings of this device cannot be measured: {describe_fault(fault)}"
        return replace(profile, notes=(*profile.notes, *problem, told), pipeline=pipeline)
    step, missing = _anatomy(examined, work, figures)
    bound, evidence = bound_of(figures)
    return replace(
        profile,
        notes=(*profile.notes, *problem, *missing),
        bound=bound,
        evidence=evidence,
        flops=work.whole.flops,
        bytes=work.whole.bytes,
        achieved_flops_share=figures.flops_share,
        achieved_bandwidth_share=figures.bandwidth_share,
        overhead_share=figures.overhead_share,
        ceilings=figures.ceilings,
        input_share=figures.input_share,
        submodules=hottest(examined.step, examined.samples[0], examined.workload.device_type, work.allocated),
        pipeline=pipeline,
        better_loader=pipeline.better(figures.latency_ms / _batches(examined)) if pipeline else None,
        step=step,
    )


def _anatomy(examined: Examined, work: Work, whole: Figures) -> tuple[StepProfile | None, list[str]]:
    """Return the profile of a training step's parts, with notes; None for a call."""
    if not isinstance(examined.step, TrainingStep):
        return None, []
    pipeline = examined.workload.pipeline
    found = Found(
        latency_ms=whole.latency_ms,
        waiting_ms=whole.latency_ms * whole.input_share / (1 - whole.input_share),
        source=pipeline.source if pipeline else "",
        work=work,
        kernels=examined.kernels,
        ceilings=whole.ceilings,
        one=whole.one,
    )
    return anatomy_of(examined.step, examined.samples[0], found)


def _figures(profile: Profile, examined: Examined, work: Work) -> Figures:
    device, pipeline = examined.workload.device_type, examined.workload.pipeline
    latency_ms = _latency_ms(profile, examined)
    return Figures(
        latency_ms=latency_ms,
        flops=work.whole.flops,
        bytes=work.whole.bytes,
        operators=work.whole.operators,
        kernels=profile.kernels_per_call,
        median_kernel_us=profile.median_kernel_us,
        outside_share=profile.outside_kernels_share,
        idle_share=1 - profile.busy if device == "cuda" and profile.busy is not None else None,
        ceilings=measure_ceilings(device, examined.workload.parameter_dtype),
        input_ms=pipeline.own.batch_ms * _batches(examined) if pipeline else 0.0,
        input_share=pipeline.share(latency_ms / _batches(examined)) if pipeline else 0.0,
        one=words_of(examined.workload.kind).one,
        convolution_flops=work.whole.convolution_flops,
    )


def _batches(examined: Examined) -> int:
    """Return how many batches of the input pipeline one unit of work consumes."""
    training = examined.workload.training
    return training.accumulate if training else 1


def with_details(profile: Profile, examined: Examined) -> Profile:
    """Add details that take some seconds and that a search does not need: recompiles, and whether the model exports."""
    call = examined.step
    if not isinstance(call, Call):  # a training step is neither exported nor called with other sizes
        return profile
    distinct = list({describe(sample): sample for sample in reversed(examined.samples)}.values())[::-1]
    first = examined.samples[0]
    again = recompiles(call, distinct[:_MOST_SIGNATURES], _RECOMPILES_S) if len(distinct) > 1 else ()
    failure = export_failure(call.model, first, _EXPORT_S)
    return replace(
        profile,
        recompiles=again,
        exportable=None if failure is None else not failure,
        export_failure=f"not found out within {_EXPORT_S:.0f} s" if failure is None else failure,
    )


def _work(examined: Examined) -> tuple[Work, list[str]]:
    """Count the work. If that fails, return empty counts and the problem, as a search can continue without them."""
    try:
        return work_of(examined.step, examined.samples[0]), []
    except Exception as fault:  # the user's custom operators may not support torch's dispatch modes
        return Work(), [f"its FLOPs and bytes cannot be counted: {describe_fault(fault)}"]


def _latency_ms(profile: Profile, examined: Examined) -> float:
    """Return the latency on the first sample, for which the work was counted.

    If all samples have the same signature, it is the baseline's latency.
    """
    if len(examined.workload.signatures) == 1:
        return profile.baseline_ms.value
    sample, synchronize = examined.samples[0], DEVICES[examined.workload.device_type].synchronize
    taken: list[float] = []
    ends = time.perf_counter() + _LATENCY_S
    while not taken or time.perf_counter() < ends:
        started = time.perf_counter()
        examined.step.run(sample)
        synchronize()
        taken.append(time.perf_counter() - started)
    return sorted(taken)[len(taken) // 2] * 1e3
