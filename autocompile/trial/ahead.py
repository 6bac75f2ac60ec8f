"""Compile without measuring, next to other processes, to fill the compiler cache for the trial that follows."""

from __future__ import annotations

import time

import torch

from autocompile.core.job import CompiledAhead, CompileTask
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.runtime.building import built, runtime
from autocompile.runtime.catalogue import kind_of
from autocompile.trial.phases import Phases
from autocompile.workload.spool import at_batch, unspool_step


def compile_ahead(task: CompileTask, phases: Phases) -> CompiledAhead | Failure:
    """Build and run a plan once, as `trial.measure` does, so that the trial finds its compiled code in the cache."""
    plan = task.plan
    with phases("load"):
        given, samples = unspool_step(task.workload)
        if plan.batch:
            samples = at_batch(samples, plan.batch)
    with phases("build"):
        eager = built(given, Plan())
    with phases("compile" if kind_of(plan).compiles == "build" else "build"):
        step = built(eager, plan, samples, isolate=True)
        torch.set_num_threads(step.threads or torch.get_num_threads())
    with phases("compile"), step.preserved():
        for sample in samples:
            step.run(sample)
    message = runtime(plan.runtime).fault()
    if message:
        return Failure(stage="compile", kind="unsupported", message=message, cause="skipped")
    with phases("warm-up"), step.preserved():
        began = time.perf_counter()
        for sample in samples:
            step.run(sample)
        return CompiledAhead(time.perf_counter() - began)
