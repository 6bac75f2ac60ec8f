"""One trial: build the candidate, prove it correct, then time it against the baseline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from autocompile.core.job import Timing, TrialTask
from autocompile.core.outcome import Failure, Measurement, Outcome, Startup
from autocompile.core.plan import Plan
from autocompile.runtime.building import build, runtime
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.preparing import IMPORT_S
from autocompile.trial.check.compare import verify
from autocompile.trial.check.new_sizes import Unseen, probe_unseen
from autocompile.trial.check.reference import Reference, preserved_buffers
from autocompile.trial.clock.timing import OnCopies, Subject, subject, time_pairs
from autocompile.trial.memory import peak_memory_bytes
from autocompile.trial.pack.loaded import Delivered, fresh_startup
from autocompile.trial.phases import Phases
from autocompile.workload.axes import batch_of
from autocompile.workload.metric import unspool_metric
from autocompile.workload.spool import at_batch, unspool

_WARMUP_PASSES = 4
_TO_ANSWER_S = 0.5


def measure(task: TrialTask, phases: Phases) -> Outcome:
    """Measure one plan. Correctness comes first: a candidate that computes something else is not timed."""
    device = task.workload.device_type
    with phases("load"):
        model, samples = unspool(task.workload)
        reference = Reference.load(Path(task.reference))
        mine, batch_factor = samples, 1.0
        if task.plan.batch:
            mine, reference = at_batch(samples, task.plan.batch), reference.at_batch(task.plan.batch)
            batch_factor = task.plan.batch / batch_of(samples[0])
        threads = torch.get_num_threads()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with phases("build"):
        built = [build(model, Plan(), device), _candidate(task, model)]
        calls = [OnCopies(one) for one in built] if reference.mutates_inputs else built
        baseline = subject(calls[0], samples, device, threads)
        candidate = subject(calls[1], mine, device, threads, batch_factor)
        candidate.apply_threads()
    own, kind = runtime(task.plan.runtime), kind_of(task.plan)
    own.forbid_giving_up()
    with phases("compile"), preserved_buffers(candidate.call):
        first_pass_s = _first_pass(candidate)
    if not task.artifact and (message := own.fault()):
        return Failure(stage="compile", kind="unsupported", message=message, cause="skipped")
    with phases("warm-up"), preserved_buffers(candidate.call):
        warmup = [candidate.one_pass() for _ in range(_WARMUP_PASSES)]
    # Now, as the baseline and the reference have not run in this process yet.
    peak_bytes = peak_memory_bytes(device)
    with phases("verify"):
        verified = verify(built[1], reference, task.acceptance, unspool_metric(task.acceptance.metric))
    if verified.fault:
        return Failure(stage="verify", kind="wrong_result", message=verified.fault)
    with phases("warm-up"):
        candidate.one_pass()
        baseline.apply_threads()
        for _ in range(2):
            baseline.one_pass()
    with phases("timing"):
        own.forbid_recompiling()
        pairs = time_pairs(baseline, candidate, _within(task.timing, phases), task.seed)
    unseen = Unseen()
    if kind.recompiles and not task.artifact and not pairs.decided:
        with phases("verify"):
            candidate.apply_threads()
            unseen = probe_unseen(built[1], model, mine, task, left_s=phases.left_s - _TO_ANSWER_S)
    if unseen.fault:
        return Failure(stage="verify", kind="wrong_result", message=unseen.fault)
    if isinstance(built[1], Delivered):
        built[1].check()
    steady_s = pairs.candidate.mean_ms / 1e3 * len(samples)
    startup = Startup(
        import_s=IMPORT_S[task.plan.runtime],
        build_s=phases.seconds["build"],
        compile_s=max(0.0, first_pass_s - steady_s),
        warmup_s=max(0.0, sum(warmup) - _WARMUP_PASSES * steady_s),
    )
    if task.artifact:
        with phases("start-up"):
            startup = fresh_startup(task)
    return Measurement(
        ratio=pairs.ratio,
        latency=pairs.candidate,
        baseline=pairs.baseline,
        startup=startup,
        accuracy=verified.accuracy,
        counters=replace(own.counters(), unseen=unseen.tried, unseen_recompiles=unseen.compiled_again),
        contamination=pairs.contamination,
        peak_memory_bytes=peak_bytes,
        decided=pairs.decided,
        batch_factor=batch_factor,
    )


def _candidate(task: TrialTask, model: Any) -> Built | Delivered:
    if task.artifact:
        return Delivered(task.artifact, model, task.plan.threads)
    return build(model, task.plan, task.workload.device_type, isolate=True)


def _within(timing: Timing, phases: Phases) -> Timing:
    """Time shorter rather than be killed: a coarse figure is worth more than none."""
    return replace(timing, limit_s=min(timing.limit_s, max(0.0, phases.left_s - _TO_ANSWER_S)))


def _first_pass(candidate: Subject) -> float:
    started = time.perf_counter()
    candidate.one_pass()
    return time.perf_counter() - started
