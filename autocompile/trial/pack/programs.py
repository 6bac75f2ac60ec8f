"""Compile a model's programs for the ranges of sizes seen in its calls, and compare each with the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn.utils.weight_norm import WeightNorm

from autocompile.core.job import ExportTask, PackTask
from autocompile.core.outcome import Accuracy
from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.runtime.base import Loaded, NotPackable
from autocompile.runtime.building import build
from autocompile.runtime.devices import computing_device
from autocompile.runtime.files import Files
from autocompile.runtime.guarded import Guarded
from autocompile.runtime.model_watch import Watch, has_hooks
from autocompile.trial.check.batch_proof import batch_axis
from autocompile.trial.check.compare import compare
from autocompile.trial.check.reference import Reference, make_reference
from autocompile.trial.check.sizes import Size, SizesTask, taken_aside, tried
from autocompile.trial.pack.first_call import FirstCall
from autocompile.trial.pack.reads import Reads, changed_by_a_call
from autocompile.trial.phases import Phases
from autocompile.workload.axes import FreeAxis, free_axes, leaves_of, resized
from autocompile.workload.call import Call
from autocompile.workload.forms import by_form
from autocompile.workload.identity.facts import attribute_texts
from autocompile.workload.metric import unspool_metric
from autocompile.workload.observation import after_call, shown
from autocompile.workload.samples import Sample, clone, describe, named_leaves, named_parts
from autocompile.workload.step import Step

_RANDOM = (
    "the model draws random numbers, and a program's random numbers cannot be compared with them; if dropout is the "
    "reason, call model.eval()"
)


class Maker(Protocol):
    """Makes programs and loads them, like a `runtime.ahead.AheadRuntime`."""

    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str, /
    ) -> Program:
        """Make a program in `directory`, for calls like `sample` over the ranges of `axes`. Raises NotPackable."""

    def load(self, program: Program, files: Files, model: Any, watch: Watch, /) -> Loaded:
        """Load a program so that it can be called."""


class Programs:
    """A model's programs, at most `most`, made by `maker`. `name`: the word for a program in error messages.

    `reads`: the attributes that calls of the model read. `compared`: the accuracy of each compared call of the program
    that was made last.
    """

    def __init__(
        self, task: PackTask | ExportTask, model: Any, maker: Maker, phases: Phases, *, most: int, name: str
    ) -> None:
        self._task, self._model, self._directory, self._phases = task, model, Path(task.directory), phases
        self._maker, self._most, self._name = maker, most, name
        self._plan = task.plan
        self._eager = Call(model, device_type=task.workload.device_type)
        self.notes: list[str] = []
        self.reads = Reads(model)
        self.compared: list[Accuracy] = []
        self._first_call = FirstCall(model)

    def made(self, samples: Sequence[Sample]) -> list[Program]:
        """Make one program for each form of call, over the range of sizes in its samples.

        All programs are also compared with the run's reference. Raises NotPackable.
        """
        if Reference.load(Path(self._task.reference)).random:
            raise NotPackable(_RANDOM, "model")
        if has_hooks(self._model):
            raise NotPackable(_about_hooks(self._model), "model")
        forms = by_form(samples)
        if len(forms) > self._most:
            raise NotPackable(f"it is called in {len(forms)} different forms", "model")
        firsts = [next(i for i, sample in enumerate(samples) if sample is form[0]) for form in forms]
        made = [
            program
            for number, (form, first) in enumerate(zip(forms, firsts, strict=True))
            for program in self._of_one_form(form, first, f"program{number}")
        ]
        with self._phases("verify"):
            self.compared += check_cases(self._guarded(made, samples[0]), self._task, self._name)
        return made

    def _guarded(self, programs: Sequence[Program], sample: Sample) -> Guarded:
        device = computing_device(self._model, sample)
        return Guarded(programs, self._maker.load, self._directory, self._model, device)

    def _of_one_form(self, form: Sequence[Sample], first: int, name: str) -> list[Program]:
        with self._phases("verify"):
            # Before any other call, because a model may cache what its first call reads.
            self._first_call.begin()
            called = clone(form[0])
            self.reads.note(lambda: self._eager.run(called))
            written = self._first_call.written()
            _check_containers(form[0], called)
            _check_writes(self._eager, form[0])
            self._refuse(written or self._first_call.trace())
            free = () if self._plan.sizes else free_axes(form, batch_axis(self._eager, form[0]))
            axes = self._accepted(form[0], first, free)
            self._refuse(self._first_call.trace())  # calls of other sizes may have set more
        attempts = dict.fromkeys((axes, _worth_having(axis.narrowed() for axis in axes)))
        fault = NotPackable("")
        for attempt in attempts:
            try:
                return [self._made(_example(form, attempt), form, attempt, name)]
            except NotPackable as refused:
                fault = refused
                self.notes.append(f"no program for sizes {_words(attempt)}: {fault}")
        distinct = {describe(sample): sample for sample in form}
        if not axes or len(distinct) > self._most:
            raise fault
        self.notes.append(f"one program for each of {len(distinct)} shapes, as one for all is not possible: {fault}")
        return [self._made(sample, [sample], (), f"{name}-{i}") for i, sample in enumerate(distinct.values())]

    def _refuse(self, reason: str) -> None:
        if reason:
            raise NotPackable(reason, "model")

    def _accepted(self, sample: Sample, number: int, axes: Sequence[FreeAxis]) -> tuple[FreeAxis, ...]:
        """Return the axes, each with the widest range that the model itself accepts.

        `number`: the number of the sample in the workload.
        """
        ends = [Size(tuple(sorted(axis.places)), size) for axis in axes for size in (axis.low, axis.high)]
        workload = self._task.workload
        if workload.device_type == "cpu":
            taken = list(tried(self._eager, sample, ends, "cpu"))
        else:
            taken = taken_aside(SizesTask(workload, self._plan.batch, number, tuple(ends)))
        pairs = zip(axes, taken[::2], taken[1::2], strict=True)
        return _worth_having([axis if low and high else axis.narrowed() for axis, low, high in pairs])

    def _made(self, example: Sample, form: Sequence[Sample], axes: Sequence[FreeAxis], name: str) -> Program:
        with self._phases("verify"):
            self.reads.note(lambda: self._eager.run(example))
        with self._phases("compile"):
            program = self._maker.compile_ahead(self._model, self._plan, example, axes, self._directory, name)
        with self._phases("verify"):
            self.compared = self._check(program, form, axes)
        return program

    def _check(self, program: Program, form: Sequence[Sample], axes: Sequence[FreeAxis]) -> list[Accuracy]:
        """Compare a program with the model across the range of every axis. The reference's cases are checked later.

        The comparison is with the eager model in the same precision. The loss of accuracy from that precision is judged
        on the samples, and not on artificial sizes.
        """
        guarded = self._guarded([program], form[0])
        acceptance = self._task.acceptance
        metric = unspool_metric(acceptance.metric)
        reduced = build(self._eager, Plan(autocast=self._task.plan.autocast, float32=self._task.plan.float32))
        found = []
        for sample in (form[0], *_across(form[0], axes)):
            reference = make_reference(self._eager, (sample,), variants=0, seed=0).against(reduced)
            compared = compare(guarded, reference, acceptance, metric)
            if compared.fault:
                raise NotPackable(f"{self._name} is wrong: {compared.fault}")
            found.append(compared.accuracy)
        return found


def check_cases(step: Step, task: PackTask | ExportTask, name: str) -> list[Accuracy]:
    """Compare a packed step with the run's reference, as is done for every candidate.

    Returns the worst accuracy once for each case. Raises NotPackable.
    """
    reference = Reference.load(Path(task.reference))
    if task.plan.batch:
        reference = reference.at_batch(task.plan.batch)
    compared = compare(step, reference, task.acceptance, unspool_metric(task.acceptance.metric))
    if compared.fault:
        raise NotPackable(f"{name} is wrong: {compared.fault}")
    return [compared.accuracy] * len(reference.cases)


def _about_hooks(model: Any) -> str:
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]  # noqa: SLF001
    is_normed = any(isinstance(hook, WeightNorm) for hook in hooks)
    remedy = "; call torch.nn.utils.remove_weight_norm on each module before" if is_normed else ""
    return f"the model has hooks, which a compiled program does not run{remedy}"


def _check_containers(given: Sample, called: Sample) -> None:
    """Raise NotPackable if a call with `called`, a clone of `given`, added items to its arguments or removed some."""
    before, after = ([name.removesuffix(" (type)") for name, _part in named_parts(one)] for one in (given, called))
    added = [f"adds input{name} to" for name in after if name not in before]
    removed = [f"removes input{name} from" for name in before if name not in after]
    if words := [*added, *removed]:
        raise NotPackable(f"it {words[0]} its arguments when called, which a compiled program does not do", "model")


def _check_writes(eager: Call, sample: Sample) -> None:
    """Raise NotPackable if each call writes into state, arguments or attributes: a program would behave differently."""
    arguments = {f"input{name}": leaf for name, leaf in named_leaves((sample.args, sample.kwargs))[0]}
    leaves = eager.observe(sample, seed=0).leaves
    for name, before in (*eager.state.named(), *arguments.items()):
        held = shown(after_call(name), before) if isinstance(before, torch.Tensor) else ()
        if not all(torch.equal(value.nan_to_num(), leaves[where].nan_to_num()) for where, value in held):
            raise NotPackable(f"it writes into {name} when called", "model")
    once = attribute_texts(eager.model)
    eager.observe(sample, seed=0)
    changed = changed_by_a_call(once, attribute_texts(eager.model))
    if changed:
        raise NotPackable(f"it changes its attribute `{changed}` when called", "model")


def _example(form: Sequence[Sample], axes: Sequence[FreeAxis]) -> Sample:
    """Return the largest sample, enlarged where a size is 1, as the compiler would treat that as a constant."""
    largest = max(form, key=lambda s: sum(leaf.numel() for leaf in leaves_of(s) if isinstance(leaf, torch.Tensor)))
    position = next(i for i, sample in enumerate(form) if sample is largest)
    for axis in axes:
        if axis.seen[position] < 2:
            largest = resized(largest, axis.places, min(2, axis.high))
    return largest


def _worth_having(axes: Iterable[FreeAxis]) -> tuple[FreeAxis, ...]:
    """Return the axes that have more than one size."""
    return tuple(axis for axis in axes if axis.low < axis.high)


def _words(axes: Sequence[FreeAxis]) -> str:
    return " and ".join(f"{axis.low} to {axis.high}" for axis in axes) or "as they are"


def _across(sample: Sample, axes: Sequence[FreeAxis]) -> Iterator[Sample]:
    """Yield samples at both ends of every axis, next to them, and at two middle sizes; then with all axes smallest."""
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
