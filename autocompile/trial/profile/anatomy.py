"""Profile a training step in detail: its phases, what bounds each of them, and what occupies its memory."""

from __future__ import annotations

from dataclasses import dataclass

from autocompile.core.bound import Bound
from autocompile.core.profile import Ceilings
from autocompile.core.step_profile import Phase, StepMemory, StepPhase, StepProfile
from autocompile.trial.profile.counting import Counted, Work
from autocompile.trial.profile.kernels import Kernels, PhaseKernels
from autocompile.trial.profile.roofline import Figures, bound_of
from autocompile.trial.profile.step_memory import step_memory
from autocompile.trial.profile.step_phases import phase_shares
from autocompile.workload.capture.script import describe_fault
from autocompile.workload.samples import Sample, clone
from autocompile.workload.training.step import TrainingStep

_NO_KERNELS = PhaseKernels(0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Found:
    """The measurements of a whole step: its latency, the time it waits for its batches, and its work.

    `ceilings` is None if they could not be measured. `one`: the word for one unit of work in texts.
    """

    latency_ms: float
    waiting_ms: float
    source: str
    work: Work
    kernels: Kernels
    ceilings: Ceilings | None
    one: str = "step"


def anatomy_of(step: TrainingStep, sample: Sample, found: Found) -> tuple[StepProfile, list[str]]:
    """Return the profile of a step, and notes on what could not be measured.

    This trains some steps, which the caller has to undo.
    """
    shares = phase_shares(step, sample, step.device_type)
    whole_ms = found.latency_ms + found.waiting_ms
    phases = [_phase(phase, share, whole_ms, found, step.device_type) for phase, share in shares.items()]
    if found.source:
        phases.insert(0, _input(found, whole_ms))
    memory, notes = _memory(step, sample)
    return StepProfile(tuple(sorted(phases, key=lambda phase: phase.name == "other")), memory), notes


def _input(found: Found, whole_ms: float) -> StepPhase:
    waits = found.waiting_ms > 0
    told = f"the {found.source} delivers batches too late" if waits else f"the {found.source} delivers batches in time"
    return StepPhase(
        name="input",
        share=found.waiting_ms / whole_ms,
        ms=found.waiting_ms,
        bound="input" if waits else "unknown",
        evidence=told,
    )


def _phase(name: Phase, share: float, whole_ms: float, found: Found, device: str) -> StepPhase:
    """Return the profile of a phase. `share`: its share of the step's own time, without waiting."""
    ms = share * found.latency_ms
    counted = found.work.phases.get(name, Counted())
    kernels = found.kernels.phases.get(name, _NO_KERNELS)
    bound, evidence = _bound(ms, counted, kernels, found, device)
    return StepPhase(
        name=name,
        share=ms / whole_ms,
        ms=ms,
        bound=bound,
        evidence=evidence,
        kernels=kernels.per_call,
        median_kernel_us=kernels.median_us,
        flops=counted.flops,
        bytes=counted.bytes,
    )


def _bound(ms: float, counted: Counted, kernels: PhaseKernels, found: Found, device: str) -> tuple[Bound, str]:
    if found.ceilings is None or not ms:
        return "unknown", ""
    return bound_of(
        Figures(
            latency_ms=ms,
            flops=counted.flops,
            bytes=counted.bytes,
            operators=counted.operators,
            kernels=kernels.per_call,
            median_kernel_us=kernels.median_us,
            outside_share=kernels.outside_share,
            idle_share=max(0.0, 1 - kernels.busy_ms / ms) if device == "cuda" else None,
            ceilings=found.ceilings,
            one=found.one,
            convolution_flops=counted.convolution_flops,
        )
    )


def _memory(step: TrainingStep, sample: Sample) -> tuple[StepMemory | None, list[str]]:
    try:
        return step_memory(step, clone(sample)), []
    except Exception as fault:  # the user's custom operators may not support autograd's hooks
        return None, [f"what occupies the memory of a step cannot be measured: {describe_fault(fault)}"]
