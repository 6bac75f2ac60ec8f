"""Packing: the winner as something that production starts in milliseconds, in a process that runs only the winner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from autocompile.artifact.mismatch import requirements
from autocompile.core.job import Packed, PackTask
from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.runtime.base import NotPackable
from autocompile.runtime.building import ahead, build, caching
from autocompile.runtime.catalogue import kind, packed_plan
from autocompile.runtime.guarded import Guarded
from autocompile.runtime.model_watch import has_hooks
from autocompile.runtime.weights import UNREADABLE, digests
from autocompile.trial.check.batch_proof import batch_axis
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import Reference, make_reference
from autocompile.trial.pack.reads import Reads, changed_by_a_call
from autocompile.trial.phases import Phases
from autocompile.workload.axes import FreeAxis, free_axes, leaves_of, resized
from autocompile.workload.call import Call
from autocompile.workload.forms import by_form
from autocompile.workload.identity.facts import attribute_texts
from autocompile.workload.metric import unspool_metric
from autocompile.workload.observation import after_call
from autocompile.workload.samples import Sample, describe, device_of, named_leaves
from autocompile.workload.spool import unspool
from autocompile.workload.step import Step

# Calls of so many different forms are compiled, each as a program of its own.
_MOST_PROGRAMS = 4
_STAGE = "pack"


def pack(task: PackTask, phases: Phases) -> Packed | Failure:
    """Pack for one way to serve; a reason why that cannot be is a Failure of kind `unsupported`."""
    with phases("load"):
        model, samples = unspool(task.workload, batch=task.plan.batch)
    directory = Path(task.directory)
    directory.mkdir(parents=True, exist_ok=True)
    if task.plan.threads:
        torch.set_num_threads(task.plan.threads)
    try:
        if task.serving.start == "cache":
            return _carry_cache(task, model, samples, directory, phases)
        return _Packing(task, model, directory, phases).programs(samples)
    except NotPackable as fault:
        return Failure(stage=_STAGE, kind="unsupported", message=str(fault))


def _carry_cache(task: PackTask, model: Any, samples: Sequence[Sample], directory: Path, phases: Phases) -> Packed:
    """What the compiler leaves in its cache when it compiles the plan, machine code included."""
    with phases("compile"):
        built = build(Call(model, device_type=task.workload.device_type), task.plan, samples)
        with built.preserved():
            for sample in (*samples, *samples):
                built.run(sample)
    with phases("verify"):
        _check_cases(built, task, "what the compiler made")
    with phases(_STAGE):
        caching(task.serving.runtime).keep_cache(directory)
    name, device_type = task.serving.runtime, task.workload.device_type
    return Packed((), requirements(name, with_python=True, device_type=device_type))


class _Packing:
    """A model's programs, made and checked one after the other."""

    def __init__(self, task: PackTask, model: Any, directory: Path, phases: Phases) -> None:
        self._task, self._model, self._directory, self._phases = task, model, directory, phases
        self._runtime = ahead(task.serving.runtime)
        self._plan = packed_plan(task.plan, task.serving)
        self._eager = Call(model, device_type=task.workload.device_type)
        self._notes: list[str] = []
        self._reads = Reads(model)
        # As the user has it: no call has been made of this copy yet.
        self._attributes = attribute_texts(model)

    def programs(self, samples: Sequence[Sample]) -> Packed:
        """One program for each form of call, over the range of sizes that its samples show."""
        refusal = self._runtime.refusal(self._plan)
        if refusal:
            raise NotPackable(refusal)
        if has_hooks(self._model):
            raise NotPackable("the model has hooks, which a compiled program does not run")
        forms = by_form(samples)
        if len(forms) > _MOST_PROGRAMS:
            raise NotPackable(f"it is called in {len(forms)} different forms")
        made = [program for number, form in enumerate(forms) for program in self._of_one_form(form, f"program{number}")]
        with self._phases("verify"):
            guarded = Guarded(made, self._runtime.load, self._directory, self._model, device_of(samples[0]))
            _check_cases(guarded, self._task, "the compiled program")
        self._notes += self._runtime.notes(self._plan)
        device_type = self._task.workload.device_type
        return Packed(
            tuple(made),
            requirements(self._task.serving.runtime, with_python=False, device_type=device_type),
            tuple(self._notes),
            self._reads.texts(),
            weights=self._weights(),
        )

    def _weights(self) -> dict[str, str]:
        """Digests of the weights that the programs have copies of, if they have."""
        if not kind(self._task.serving.runtime).holds_weights:
            return {}
        with self._phases(_STAGE):
            read = digests(self._model)
        unreadable = [path for path, digest in read.items() if digest == UNREADABLE]
        if unreadable:
            raise NotPackable(f"it would hold a copy of {unreadable[0]}, whose bytes cannot be read")
        return read

    def _of_one_form(self, form: Sequence[Sample], name: str) -> list[Program]:
        with self._phases("verify"):
            # Before any other call, as what is kept from a first call is not read again.
            self._reads.note(lambda: self._eager.run(form[0]))
            _check_writes(self._eager, form[0], self._attributes)
            axes = self._accepted(form, free_axes(form, batch_axis(self._eager, form[0])))
        attempts = dict.fromkeys((axes, _worth_having(axis.narrowed() for axis in axes)))
        fault = ""
        for attempt in attempts:
            try:
                return [self._made(_example(form, attempt), form, attempt, name)]
            except NotPackable as refused:
                fault = str(refused)
                self._notes.append(f"no program for sizes {_words(attempt)}: {fault}")
        distinct = {describe(sample): sample for sample in form}
        if not axes or len(distinct) > _MOST_PROGRAMS:
            raise NotPackable(fault)
        self._notes.append(f"one program for each of {len(distinct)} shapes, as one for all cannot be had: {fault}")
        return [self._made(sample, [sample], (), f"{name}-{i}") for i, sample in enumerate(distinct.values())]

    def _accepted(self, form: Sequence[Sample], axes: Sequence[FreeAxis]) -> tuple[FreeAxis, ...]:
        """The axes, each with as wide a range as the model itself takes."""
        kept = []
        for axis in axes:
            try:
                for size in (axis.low, axis.high):
                    self._eager.run(resized(form[0], axis.places, size))
            except Exception:  # whatever a model raises for a size that is not its own
                kept.append(axis.narrowed())
            else:
                kept.append(axis)
        return _worth_having(kept)

    def _made(self, example: Sample, form: Sequence[Sample], axes: Sequence[FreeAxis], name: str) -> Program:
        with self._phases("verify"):
            self._reads.note(lambda: self._eager.run(example))
        with self._phases("compile"):
            program = self._runtime.compile_ahead(self._model, self._plan, example, axes, self._directory, name)
        with self._phases("verify"):
            self._check(program, form, axes)
        return program

    def _check(self, program: Program, form: Sequence[Sample], axes: Sequence[FreeAxis]) -> None:
        """Compare it with the model across the range of every axis: the reference's own cases are checked later.

        It has to be as right as the model itself, eager, in the same precision: what that precision costs is judged
        on the samples, and not on sizes that were made up.
        """
        guarded = Guarded([program], self._runtime.load, self._directory, self._model, device_of(form[0]))
        acceptance = self._task.acceptance
        metric = unspool_metric(acceptance.metric)
        reduced = build(self._eager, Plan(autocast=self._task.plan.autocast))
        for sample in (form[0], *_across(form[0], axes)):
            reference = make_reference(self._eager, (sample,), variants=0, seed=0).against(reduced)
            compared = compare(guarded, reference, acceptance, metric)
            if compared.fault:
                raise NotPackable(f"the compiled program is wrong: {compared.fault}")


def _check_cases(step: Step, task: PackTask, name: str) -> None:
    """Compare what was packed with the run's own reference: the gate that every candidate passes."""
    reference = Reference.load(Path(task.reference))
    if task.plan.batch:
        reference = reference.at_batch(task.plan.batch)
    compared = compare(step, reference, task.acceptance, unspool_metric(task.acceptance.metric))
    if compared.fault:
        raise NotPackable(f"{name} is wrong: {compared.fault}")


def _check_writes(eager: Call, sample: Sample, attributes: Mapping[str, str]) -> None:
    """What is written into when the model is called would be neither followed nor shared as in eager.

    `attributes` are the model's plain ones before its first call.
    """
    arguments = {f"input{name}": leaf for name, leaf in named_leaves((sample.args, sample.kwargs))[0]}
    leaves = eager.observe(sample, seed=0).leaves
    for name, before in (*eager.state.named(), *arguments.items()):
        if not isinstance(before, torch.Tensor):
            continue
        if not torch.equal(before.nan_to_num(), leaves[after_call(name)].nan_to_num()):
            raise NotPackable(f"it writes into {name} when called")
    once = attribute_texts(eager.model)
    eager.observe(sample, seed=0)
    changed = changed_by_a_call(once, attribute_texts(eager.model))
    if changed:
        raise NotPackable(f"it changes its attribute `{changed}` when called")
    set_first = changed_by_a_call(attributes, once)
    if set_first:
        raise NotPackable(f"it sets its attribute `{set_first}` when it is first called, and not before")


def _example(form: Sequence[Sample], axes: Sequence[FreeAxis]) -> Sample:
    """The largest sample, enlarged where a size is 1: the compiler would take that for a constant."""
    largest = max(form, key=lambda s: sum(leaf.numel() for leaf in leaves_of(s) if isinstance(leaf, torch.Tensor)))
    position = next(i for i, sample in enumerate(form) if sample is largest)
    for axis in axes:
        if axis.seen[position] < 2:
            largest = resized(largest, axis.places, min(2, axis.high))
    return largest


def _worth_having(axes: Iterable[FreeAxis]) -> tuple[FreeAxis, ...]:
    """Without those that have one size only."""
    return tuple(axis for axis in axes if axis.low < axis.high)


def _words(axes: Sequence[FreeAxis]) -> str:
    return " and ".join(f"{axis.low} to {axis.high}" for axis in axes) or "as they are"


def _across(sample: Sample, axes: Sequence[FreeAxis]) -> Iterator[Sample]:
    """Both ends of every axis, their neighbours and a middle, odd and even; and all axes at their smallest."""
    for axis in axes:
        middle = (axis.low + axis.high) // 2
        sizes = (axis.low, axis.low + 1, middle, middle + 1, axis.high - 1, axis.high)
        for size in sorted({size for size in sizes if axis.low <= size <= axis.high}):
            yield resized(sample, axis.places, size)
    if len(axes) > 1:
        smallest = sample
        for axis in axes:
            smallest = resized(smallest, axis.places, axis.low)
        yield smallest
