"""The first profile: measure the baseline before the search."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from msgspec.structs import replace

from autocompile.core.estimate import Estimate
from autocompile.core.job import Acceptance, ProfileTask
from autocompile.core.notices import disturbance, of_training
from autocompile.core.plan import Plan
from autocompile.core.profile import Profile
from autocompile.core.tolerance import published_tolerance
from autocompile.core.words import WorkloadKind
from autocompile.core.workload import Workload
from autocompile.runtime.building import built
from autocompile.trial.check.batch_proof import CALLS_OF_A_BATCH_PROOF, batch_axis
from autocompile.trial.check.compare import compare
from autocompile.trial.check.padding_proof import CALLS_OF_A_PROOF, PaddingProof, prove_padding
from autocompile.trial.check.reference import Reference, make_reference
from autocompile.trial.check.repeatability import Repeatability, check_children, repeatability
from autocompile.trial.clock.nvml import utilization
from autocompile.trial.clock.timing import Pairs, subject, time_pairs
from autocompile.trial.memory import forget_peak, peak_memory_bytes
from autocompile.trial.phases import Phases
from autocompile.trial.profile import diagnosis
from autocompile.trial.profile.blocks import repeated_blocks
from autocompile.trial.profile.graphbreaks import Traced, placed, traced_in
from autocompile.trial.profile.kernels import Kernels, kernels_of
from autocompile.trial.profile.savings import with_savings
from autocompile.trial.step_memory import step_peak_bytes
from autocompile.workload.call import Call
from autocompile.workload.metric import unspool_metric
from autocompile.workload.samples import Sample
from autocompile.workload.spool import unspool_step
from autocompile.workload.step import Step
from autocompile.workload.training.step import TrainingStep

_PROFILED_CALLS = 3
_VARIANTS = 2
# The bytes that a case of a training holds for each byte of its parameters (gradients of each step, parameters, the
# optimizer's state, and all of them again in float64), and the bytes that all cases together may take.
_HELD, _ROOM_BYTES = 20, 256 * 1024**2
_LONGEST_TRACE_S = 600.0
# A full profile (for the user to read) should take half a minute and some twenty calls. These are the seconds for
# tracing and for one pass over the samples.
_BRIEF_TRACE_S, _PASS_S = 6.0, 0.5
_WARM_S = 0.5
_PROOF_SHARE = 0.1
_RANDOM: dict[WorkloadKind, str] = {
    "inference": "the model draws random numbers, as for dropout: a candidate is compared while it draws eager's, and "
    "then by the distribution of its own",
    "training": "a step draws random numbers, as for dropout: a candidate is compared while it draws eager's, and "
    "then by the distribution of its own",
    "closure": "the closure draws random numbers, as for dropout: a candidate is compared while it draws eager's, and "
    "then by the distribution of its own",
}
# Importing the tracer alone takes seconds. A small budget is better spent on trials.
_WORTH_TRACING_S = 15.0


def take_profile(task: ProfileTask, phases: Phases) -> Profile:
    """Profile the baseline. A brief profile also stores the float64 reference for the trials.

    Raises whatever the model raises on its own inputs, and InvalidWorkload if it cannot be profiled.
    """
    with phases("load"):
        given, samples = unspool_step(task.workload)
        eager = built(given, Plan())
    with phases("verify"):
        if isinstance(given, TrainingStep):
            given.twin().check(samples[0])
        compared = _compare(task, eager, samples)
    timed = eager.on_copies() if compared.mutates else eager
    with eager.preserved():
        with phases("timing"):
            steady = _time_baseline(timed, compared.samples, task)
        with phases("profile"):
            kernels = _kernels(eager, compared, task)
            figures = replace(
                _measured(eager, compared, _figures(compared, steady, kernels), task, phases),
                blocks=repeated_blocks(given.module),
                notes=(*task.workload.notes, *_notes(task, compared, steady, len(samples))),
            )
            examined = diagnosis.Examined(task.workload, timed, compared.samples, kernels)
            bounded = diagnosis.with_bound(figures, examined)
            if task.depth == "full":
                return diagnosis.with_details(bounded, examined)
    with phases("profile"):
        free_batch = _free_batch(eager, compared, phases.left_s)
        cuts = task.workload.script is None  # a script splits its batches itself
        saved = with_savings(bounded, eager, samples, compared.repeats.call_s, phases.left_s, cuts=cuts)
        # Done last: after a call with values that the model does not accept, this process can no longer use the GPU.
        padding = _padding(task, eager, samples, compared.repeats.call_s, phases.left_s)
        return replace(saved, buckets=padding.buckets, padding_problem=padding.problem, free_batch=free_batch)


def _kernels(eager: Step, compared: _Compared, task: ProfileTask) -> Kernels:
    calls = _PROFILED_CALLS if compared.repeats.call_s < _PASS_S else 1
    return kernels_of(eager, compared.samples[0], task.workload.device_type, calls)


def _measured(eager: Step, compared: _Compared, figures: Profile, task: ProfileTask, phases: Phases) -> Profile:
    """Add memory and graphs to the figures measured before."""
    memory = _peak_bytes(eager, compared.samples, task.workload.device_type)
    full = task.depth == "full"
    limit_s = _BRIEF_TRACE_S if full else min(phases.left_s / 3, _LONGEST_TRACE_S)
    traced = Traced(0, (), "it was not tried, because too little of the budget is left")
    if full or limit_s > _WORTH_TRACING_S:
        traced = placed(eager.module, traced_in(eager, compared.samples[0], limit_s))
    return replace(
        figures,
        peak_memory_bytes=memory,
        graph_count=traced.graphs,
        graph_breaks=traced.breaks,
        trace_failure=traced.failure,
    )


def _peak_bytes(eager: Step, samples: Sequence[Sample], device_type: str) -> int:
    """Return the peak memory: of the step itself in training, of the calls on a GPU, else of the process."""
    if isinstance(eager, TrainingStep):
        return step_peak_bytes(eager, samples)
    if device_type == "cuda":
        forget_peak(device_type)
        for sample in samples:
            eager.run(sample)
    return peak_memory_bytes(device_type)


@dataclass(frozen=True)
class _Compared:
    """The results of calling the model: the samples to profile and, for a search, the reference (else None)."""

    samples: tuple[Sample, ...]
    repeats: Repeatability
    reference: Reference | None
    error_floor: float

    @property
    def mutates(self) -> bool:
        return self.repeats.mutates_inputs or bool(self.reference and self.reference.mutates_inputs)


def _compare(task: ProfileTask, eager: Step, samples: tuple[Sample, ...]) -> _Compared:
    repeats = repeatability(eager, samples[0], task.seed)
    if task.depth == "full":
        check_children(repeats)
        return _Compared(_affordable(samples, repeats.call_s), repeats, None, 0.0)
    reference = _reference(task, eager, samples, random=repeats.random)
    floor = compare(eager, reference, Acceptance(published_tolerance(""))).accuracy.baseline_error
    return _Compared(samples, repeats, reference, floor)


def _padding(task: ProfileTask, eager: Step, samples: Sequence[Sample], call_s: float, left_s: float) -> PaddingProof:
    """Prove that calls may be padded, if they differ in size."""
    if not isinstance(eager, Call):
        return PaddingProof(problem="the batches of a training step are not filled up")
    if len(task.workload.signatures) == 1:
        return PaddingProof(problem="the inputs have one signature")
    if CALLS_OF_A_PROOF * call_s > _PROOF_SHARE * left_s:
        return PaddingProof(problem="filling up calls was not tried, because too little of the budget is left")
    return prove_padding(eager, samples)


def _free_batch(eager: Step, compared: _Compared, left_s: float) -> bool | None:
    """Whether a call may hold another number of samples; None if too little of the budget is left to find out."""
    if not isinstance(eager, Call):
        return None
    if compared.repeats.random:
        return False
    if CALLS_OF_A_BATCH_PROOF * compared.repeats.call_s > _PROOF_SHARE * left_s:
        return None
    return bool(batch_axis(eager, compared.samples[0]))


def _figures(compared: _Compared, steady: _Steady, kernels: Kernels) -> Profile:
    return Profile(
        baseline_ms=_baseline_ms(steady.pairs),
        self_ratio=steady.pairs.ratio,
        busy_share=steady.busy_share,
        busy_source=steady.busy_source,
        outside_kernels_share=kernels.outside_share,
        kernels_per_call=kernels.per_call,
        median_kernel_us=kernels.median_us,
        matrix_kernels=kernels.matrix,
        attention_share=kernels.attention_share,
        peak_memory_bytes=0,
        graph_count=0,
        graph_breaks=(),
        trace_failure="",
        blocks=(),
        deterministic=compared.repeats.deterministic,
        random=compared.repeats.random,
        error_floor=compared.error_floor,
        reference=compared.reference.precision if compared.reference else "",
        variants=len(compared.reference.cases) if compared.reference else 0,
        contamination=steady.pairs.contamination,
        opaque_input=compared.repeats.opaque_input,
        opaque_output=compared.repeats.opaque_output,
        unrepeatable=compared.repeats.unrepeatable,
    )


def _affordable(samples: Sequence[Sample], call_s: float) -> tuple[Sample, ...]:
    """Return an even selection of the samples such that one pass takes at most half a second; at least one sample."""
    count = min(len(samples), max(1, int(_PASS_S / max(call_s, 1e-6))))
    return tuple(samples[position * len(samples) // count] for position in range(count))


def variants_of(workload: Workload) -> int:
    """Return how many random variants of each signature are compared: in a training, as many as memory allows.

    A case of a training holds the results of several steps: some twenty times the size of the parameters.
    """
    if workload.training is None:
        return _VARIANTS
    a_case = max(1, _HELD * workload.parameter_bytes)
    return max(0, min(_VARIANTS, _ROOM_BYTES // (a_case * len(workload.signatures)) - 1))


def _reference(task: ProfileTask, eager: Step, samples: tuple[Sample, ...], *, random: bool) -> Reference:
    """Make the reference, store it in the task's file, and try the user's metric on it."""
    reference = make_reference(eager, samples, variants=variants_of(task.workload), seed=task.seed, random=random)
    reference.save(Path(task.reference), with_outputs=bool(task.metric))
    metric = unspool_metric(task.metric)
    if metric is not None:
        for case in reference.cases:
            metric(case.baseline.output)
    return Reference.load(Path(task.reference))  # loaded lazily, so it takes no memory from the profiled model


def _baseline_ms(pairs: Pairs) -> Estimate:
    latency = pairs.baseline
    other = pairs.candidate
    return Estimate(
        value=statistics.mean((latency.p50_ms, other.p50_ms)),
        low=min(latency.p50_ms, other.p50_ms),
        high=max(latency.p90_ms, other.p90_ms),
    )


def _notes(task: ProfileTask, compared: _Compared, steady: _Steady, given: int) -> list[str]:
    notes = list(compared.reference.notes) if compared.reference else []
    notes.extend(notice.text for notice in of_training(task.workload))
    if compared.mutates:
        notes.append("the model writes into its inputs: every call gets a copy, whose cost is in all figures")
    if compared.repeats.replaced:
        notes.append(f"model.{compared.repeats.replaced} is another module after every call")
    if compared.repeats.random:
        notes.append(_RANDOM[task.workload.kind])
    if steady.pairs.contamination.noisy:
        notes.append(f"the host is noisy: {disturbance(steady.pairs.contamination)}")
    if len(compared.samples) < given:
        notes.append(f"{len(compared.samples)} of {given} samples were profiled, because all would take too long")
    return notes


@dataclass(frozen=True)
class _Steady:
    """The baseline in steady state, and how busy the device is meanwhile."""

    pairs: Pairs
    busy_share: float | None
    busy_source: str


def _time_baseline(eager: Step, samples: Sequence[Sample], task: ProfileTask) -> _Steady:
    device = task.workload.device_type
    baseline = subject(eager, samples, device, torch.get_num_threads())
    twin = subject(eager.twin(), samples, device, torch.get_num_threads())
    for _ in range(3):
        if baseline.one_pass() > _WARM_S:
            break
    wall, cpu = time.perf_counter(), time.process_time()
    pairs = time_pairs(baseline, twin, task.timing, task.seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if device == "cuda":
        busy = utilization(baseline.one_pass, seconds=2.0)
        if busy is not None:
            return _Steady(pairs, busy, "NVML utilization over 2 s of steady state")
        return _Steady(pairs, None, "NVML does not answer")
    threads = torch.get_num_threads()
    source = f"process CPU time over {threads} threads' wall time"
    return _Steady(pairs, min(1.0, cpu / (wall * threads)), source)
