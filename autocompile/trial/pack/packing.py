"""Pack the winner as an artifact that production starts in milliseconds, in a process that runs only the winner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from autocompile.artifact.mismatch import requirements
from autocompile.core.job import Packed, PackTask
from autocompile.core.outcome import Failure
from autocompile.runtime.base import NotLoadable, NotPackable
from autocompile.runtime.building import ahead, as_trained, build, caching
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.held_tensors import HeldTensors
from autocompile.runtime.weights import UNREADABLE, digests
from autocompile.trial.check.randomness import lowering_fault
from autocompile.trial.check.reference import Reference
from autocompile.trial.pack.programs import Programs, check_cases
from autocompile.trial.phases import Phases
from autocompile.workload.call import Call
from autocompile.workload.identity.code import code_of
from autocompile.workload.identity.state import state_texts
from autocompile.workload.samples import Sample
from autocompile.workload.spool import at_batch, unspool, unspool_step
from autocompile.workload.training.step import TrainingStep

# At most this many different forms of calls are compiled, each as a separate program.
_MOST_PROGRAMS = 4
_STAGE = "pack"


def pack(task: PackTask, phases: Phases) -> Packed | Failure:
    """Pack for one way to serve. Returns a Failure of kind `unsupported`, with the reason, if that is impossible."""
    directory = Path(task.directory)
    directory.mkdir(parents=True, exist_ok=True)
    if task.workload.training is not None:
        return _carry_cache_of_training(task, directory, phases)
    with phases("load"):
        model, samples = unspool(task.workload, batch=task.plan.batch)
    if task.plan.threads:
        torch.set_num_threads(task.plan.threads)
    try:
        if task.serving.start == "cache":
            return _carry_cache(task, model, samples, directory, phases)
        return _compile_programs(task, model, samples, phases)
    except NotPackable as fault:
        return Failure(stage=_STAGE, kind="unsupported", message=str(fault), cause=fault.cause)
    except NotLoadable as fault:  # for example, if no CUDA graph can be captured
        return Failure(stage=_STAGE, kind="unsupported", message=str(fault), cause=fault.cause)


def _carry_cache(task: PackTask, model: Any, samples: Sequence[Sample], directory: Path, phases: Phases) -> Packed:
    """Pack the compiler's cache after it has compiled the plan, including machine code."""
    eager = Call(model, device_type=task.workload.device_type)
    with phases("compile"):
        built = build(eager, task.plan, samples)
        with built.preserved():
            for sample in (*samples, *samples):
                built.run(sample)
    with phases("verify"):
        _check_compiled(built, eager, samples[0], task)
    return _kept_cache(task, directory, phases)


def _check_compiled(built: Call, eager: Call, sample: Sample, task: PackTask) -> None:
    """Raise NotPackable if the compiled step is wrong.

    The trial has compared a step with random numbers exactly, while it drew eager's numbers. Here the packed step
    itself is checked, which draws its own numbers.
    """
    name = "the compiled code"
    if not Reference.load(Path(task.reference)).random:
        check_cases(built, task, name)
        return
    fault = lowering_fault(built, eager, sample, 0, task.acceptance.tolerance)
    if fault:
        raise NotPackable(f"{name} is wrong: {fault}")


def _carry_cache_of_training(task: PackTask, directory: Path, phases: Phases) -> Packed:
    """Pack the compiler's cache of training steps. It starts from the trial's cache, which the trial has verified."""
    with phases("load"):
        given, samples = unspool_step(task.workload)
        samples = at_batch(samples, task.plan.batch) if task.plan.batch else samples
        assert isinstance(given, TrainingStep)
    if task.plan.threads:
        torch.set_num_threads(task.plan.threads)
    with phases("compile"):
        step = as_trained(given, task.plan)
        with step.preserved():
            for sample in (*samples, *samples):
                step.run(sample)
    return _kept_cache(task, directory, phases)


def _kept_cache(task: PackTask, directory: Path, phases: Phases) -> Packed:
    with phases(_STAGE):
        caching(task.serving.runtime).keep_cache(directory)
    name, device = task.serving.runtime, torch.device(task.workload.device)
    return Packed((), requirements(name, with_python=True, device_type=device.type, gpu=device.index))


def _compile_programs(task: PackTask, model: Any, samples: Sequence[Sample], phases: Phases) -> Packed:
    """Pack programs that the runtime compiles ahead of time."""
    own, device = ahead(task.serving.runtime), torch.device(task.workload.device)
    programs = Programs(task, model, own, phases, most=_MOST_PROGRAMS, name="the compiled program")
    made = programs.made(samples)
    return Packed(
        tuple(made),
        requirements(task.serving.runtime, with_python=False, device_type=device.type, gpu=device.index),
        tuple(programs.notes),
        programs.reads.texts(),
        state_texts(code_of(model)),
        weights=_weights(task, model, phases),
        weight_samples=_weights(task, model, phases, sampled=True),
    )


def _weights(task: PackTask, model: Any, phases: Phases, *, sampled: bool = False) -> dict[str, str]:
    """Return digests of the weights (or of a sample of each) if the programs hold copies of them, else nothing."""
    if not kind_of(task.plan).holds_weights(task.plan):
        return {}
    with phases(_STAGE):
        read = digests(HeldTensors(model).named(), sampled=sampled)
    unreadable = [path for path, digest in read.items() if digest == UNREADABLE]
    if unreadable:
        raise NotPackable(f"it would hold a copy of {unreadable[0]}, whose bytes cannot be read")
    return read
