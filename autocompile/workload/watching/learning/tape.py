"""Convert recorded operations to the tape of one loss: its operations, and the tensors from outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.workload.samples import named_leaves
from autocompile.workload.state import RandomState
from autocompile.workload.training.recorded import Constant, Given, Made, Operation, Own, Tape
from autocompile.workload.watching.learning.recorder import UNSEEN, Outer, Recorded, Recorder, Seen

# Prefixes of argument paths: `[0]` for those by position, `[1]` for those by name.
_FIRST = "[0]"


class NotRecorded(Exception):
    """A loss cannot be computed again from what was recorded. The message tells why."""


@dataclass(frozen=True)
class Round:
    """One loss and its origin: its `tape`, the tensors that are `given` by name, and its unscaled `value`.

    `subject` is the module that was called. `calls` identifies these calls by the numbers of their results. `random` is
    torch's random state before each call.
    """

    subject: nn.Module
    tape: Tape
    given: dict[str, torch.Tensor]
    value: float
    random: tuple[RandomState, ...]
    calls: frozenset[int]

    @property
    def size(self) -> int:
        """The size of the given tensors in bytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.given.values())


class Constants:
    """Tensors that are the same in all rounds, such as the parameters of a model that is not the subject."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[int, tuple[torch.Tensor, int]] = {}

    def place(self, tensor: torch.Tensor, seen: Seen) -> Constant:
        """Return a tensor's place. Its value is the one it had when it was first seen."""
        assert seen.copy is not None
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = tensor, len(self.tensors)
            self.tensors.append(seen.copy)
        return Constant(self._numbers[id(tensor)][1])


def round_of(recorder: Recorder, roots: Sequence[torch.Tensor], constants: Callable[[nn.Module], Constants]) -> Round:
    """Return what led to this loss. Raises NotRecorded if a part was not seen, or if several modules led to it."""
    if len(roots) != 1 or roots[0].numel() != 1:
        raise NotRecorded("backward() is called on several tensors at once, or on one that is not a scalar")
    number = recorder.number_of(roots[0])
    if number is None:
        raise NotRecorded(UNSEEN)
    needed = _needed(recorder, number)
    subjects = list({id(one.module): one.module for one in needed if one.module is not None}.values())
    if len(subjects) != 1:
        kinds = " and ".join(type(one).__name__ for one in subjects)
        raise NotRecorded(f"one loss comes from calls of {kinds}; call them in one module" if kinds else UNSEEN)
    made = _Writer(recorder, subjects[0], constants(subjects[0]))
    operations = tuple(made.operation(one) for one in needed)
    value = float(roots[0].detach()) / math.prod(one.factor for one in needed)
    calls = [one for one in needed if one.module is not None]
    random = tuple(one.random for one in calls if one.random is not None)
    tape = Tape(operations, made.renumbered(number))
    return Round(subjects[0], tape, made.given, value, random, frozenset(one.results[0] for one in calls))


def _needed(recorder: Recorder, number: int) -> list[Recorded]:
    """Return the operations that a result depends on, in the order in which they were done."""
    found: dict[int, Recorded] = {}
    pending = [number]
    while pending:
        one = recorder.by_result[pending.pop()]
        if one.results[0] not in found:
            found[one.results[0]] = one
            pending += [leaf.number for leaf in one.leaves if isinstance(leaf, Made)]
    return [found[first] for first in sorted(found)]


class _Writer:
    """Writes operations for one module. Rounds that do the same get the same numbers and names."""

    def __init__(self, recorder: Recorder, subject: nn.Module, constants: Constants) -> None:
        self._recorder, self._constants = recorder, constants
        self._own: Mapping[int, str] = {id(parameter): name for name, parameter in subject.named_parameters()}
        self._numbers: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self.given: dict[str, torch.Tensor] = {}

    def renumbered(self, number: int) -> int:
        return self._numbers.setdefault(number, len(self._numbers))

    def operation(self, recorded: Recorded) -> Operation:
        title = "" if recorded.module is not None else getattr(recorded.function, "__name__", "function")
        named, _spec = named_leaves(pytree.tree_unflatten(recorded.leaves, recorded.spec))
        leaves = [self._leaf(leaf, title + path[len(_FIRST) :]) for path, leaf in named]
        args, kwargs = pytree.tree_unflatten(leaves, recorded.spec)
        results = tuple(self.renumbered(number) for number in recorded.results)
        return Operation(recorded.function, args, kwargs, results)

    def _leaf(self, leaf: Any, path: str) -> Any:
        if isinstance(leaf, Made):
            return Made(self.renumbered(leaf.number))
        return self._place(leaf.number, path) if isinstance(leaf, Outer) else leaf

    def _place(self, number: int, path: str) -> Own | Constant | Given:
        seen = self._recorder.outer[number]
        tensor = seen.tensor()
        if seen.problem or seen.copy is None:
            raise NotRecorded(seen.problem or UNSEEN)
        if id(tensor) in self._own:
            return Own(self._own[id(tensor)])
        if isinstance(tensor, nn.Parameter) and seen.needs_gradient:
            return self._constants.place(tensor, seen)
        if number not in self._names:
            name = path
            while name in self.given:
                name += "'"
            self._names[number], self.given[name] = name, seen.copy
        return Given(self._names[number], seen.needs_gradient)
