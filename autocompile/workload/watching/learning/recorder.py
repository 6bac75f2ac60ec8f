"""The operations that lead from a model's call to a loss, recorded while a script does them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch.jit._trace import is_tracing
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode
from torch.utils import _pytree as pytree

from autocompile.workload.state import RandomState
from autocompile.workload.training.recorded import Made, tensors_of
from autocompile.workload.watching.tally import own_copy

# What a function that is put in the place of another has it by.
STANDS_FOR = "_stands_for"


@dataclass(frozen=True)
class Outer:
    """In the place of a tensor that no operation has made which was recorded: its number among those."""

    number: int


@dataclass(frozen=True)
class Seen:
    """A tensor from outside: the `tensor` itself, and a `copy` of what it held; `unexplained`: it has a graph."""

    tensor: torch.Tensor
    copy: torch.Tensor
    unexplained: bool


@dataclass(frozen=True)
class Recorded:
    """An operation; `module` is what was called, None for a function. Tensors are `Made` or `Outer` in `leaves`.

    `models`: by identity, those whose outputs it comes from. `random`: torch's random numbers before a module was
    called.
    """

    function: Callable[..., Any] | None
    module: nn.Module | None
    leaves: list[Any]
    spec: pytree.TreeSpec
    results: tuple[int, ...]
    models: frozenset[int] = frozenset()
    random: RandomState | None = None


class Recorder(TorchFunctionMode):
    """Records what is done with the outputs of models, and with parameters, where that leads to a gradient.

    What needs no gradient comes from outside: a target, a mask, what was detached. A function that a script has written
    for autograd is not seen; what it gives is then unexplained.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_result: dict[int, Recorded] = {}
        self.outer: list[Seen] = []
        self.held_bytes = 0
        self.records = True
        self._numbers: dict[int, tuple[ref[torch.Tensor], int]] = {}
        self._outer_numbers: dict[tuple[int, int], int] = {}
        self._next = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_seen = self.records and torch.is_grad_enabled() and not is_tracing()  # type: ignore[no-untyped-call]
        if not is_seen or not self._concerns(args, kwargs):
            return func(*args, **kwargs)
        function, given = _as_function(func, args)
        leaves, spec = pytree.tree_flatten((given, kwargs))
        places = [self._place(leaf) for leaf in leaves]
        made = func(*args, **kwargs)
        results = (args[0],) if made is None else tuple(tensors_of(made))
        if not all(map(_has_no_graph, results)):
            if _changes_its_first(func) and isinstance(places[0], Outer):
                places[0] = self._copy_of(places[0])
            self._note(function, None, (places, spec), results)
        return made

    def called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], make: Callable[..., Any]) -> Any:
        """Make a call of a module, and record it as one operation."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = [self._place(leaf) for leaf in leaves]
        random = RandomState.now()
        with self.paused():
            made = make(module, *args, **kwargs)
        results = tuple(tensors_of(made))
        if not all(map(_has_no_graph, results)):
            self._note(None, module, (places, spec), results, random)
        return made

    def follows_another(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether one of these is an output of another model than this one, or was made from one."""
        numbers = [self._number(one) for one in tensors_of((args, kwargs))]
        return any(number is not None and self.by_result[number].models - {id(module)} for number in numbers)

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Which of the results of the operations this is, or None."""
        return self._number(tensor)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it nothing is recorded, nor in the way of what is called."""
        if _get_current_function_mode() is not self:  # type: ignore[no-untyped-call]
            before, self.records = self.records, False
            try:
                yield
            finally:
                self.records = before
            return
        _pop_mode()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            _push_mode(self)  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Stop, and let all go that was recorded."""
        self.records = False
        self.by_result, self.outer = {}, []
        self._numbers, self._outer_numbers = {}, {}

    def _concerns(self, args: Any, kwargs: Any) -> bool:
        """Whether a tensor is among them that needs a gradient, or was made by what was recorded."""
        flat = pytree.tree_leaves((args, kwargs))
        return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in flat)

    def _number(self, tensor: torch.Tensor) -> int | None:
        held = self._numbers.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else None

    def _place(self, leaf: Any) -> Any:
        """What stands for an argument: it is looked at before the operation, which may change it."""
        if not isinstance(leaf, torch.Tensor):
            return own_copy(leaf)
        number = self._number(leaf)
        return Outer(self._seen(leaf)) if number is None else Made(number)

    def _seen(self, tensor: torch.Tensor) -> int:
        key = (id(tensor), _changes_of(tensor))
        number = self._outer_numbers.get(key)
        if number is None:
            copy = own_copy(tensor)
            self.held_bytes += copy.numel() * copy.element_size()
            self.outer.append(Seen(tensor, copy, tensor.requires_grad and not tensor.is_leaf))
            number = self._outer_numbers[key] = len(self.outer) - 1
        return number

    def _note(
        self,
        function: Callable[..., Any] | None,
        module: nn.Module | None,
        arguments: tuple[list[Any], pytree.TreeSpec],
        made: tuple[torch.Tensor, ...],
        random: RandomState | None = None,
    ) -> None:
        numbers = range(self._next, self._next + len(made))
        self._next += len(made)
        before = [self.by_result[leaf.number].models for leaf in arguments[0] if isinstance(leaf, Made)]
        models = frozenset([id(module)] if module is not None else ()).union(*before)
        recorded = Recorded(function, module, *arguments, tuple(numbers), models, random)
        for number, tensor in zip(numbers, made, strict=True):
            self.by_result[number] = recorded
            if not _has_no_graph(tensor):
                self._numbers[id(tensor)] = ref(tensor), number

    def _copy_of(self, place: Outer) -> Made:
        """A tensor from outside that is written into: a copy of it takes its place, each time anew."""
        places, spec = pytree.tree_flatten(((place,), {}))
        number = self._next
        self._next += 1
        self.by_result[number] = Recorded(torch.clone, None, places, spec, (number,))
        return Made(number)


def _has_no_graph(tensor: torch.Tensor) -> bool:
    """Whether no operation has made it that a gradient would go through: a parameter is not made by what fills it."""
    return tensor.is_leaf or not tensor.requires_grad


def _changes_of(tensor: torch.Tensor) -> int:
    """How often it was written into."""
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001  torch tells no other way


def _as_function(func: Any, args: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What can be sent to another process, for what was called: a property of a tensor is got by its name."""
    property_name = getattr(getattr(func, "__self__", None), "__name__", "")
    if getattr(func, "__name__", "") == "__get__" and property_name:
        return getattr, (args[0], property_name)
    return getattr(func, STANDS_FOR, func), tuple(args)


def _changes_its_first(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
