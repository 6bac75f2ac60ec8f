"""The operations that lead from a model's call to a loss, recorded while a script does them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch._C._functorch import peek_interpreter_stack
from torch.jit._trace import is_tracing
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode
from torch.utils import _pytree as pytree

from autocompile.workload.state import RandomState
from autocompile.workload.training.recorded import Made, tensors_of
from autocompile.workload.watching.tally import own_copy

UNSEEN = "its loss goes through code that is not seen, as a torch.autograd.Function of its own, or compiled code"
# Copies of tensors from outside hold no more than that; below the other, nobody looks whether they are needed.
MOST_BYTES, _LITTLE_BYTES = 1024**3, 64 * 1024**2
# What a function that is put in the place of another has it by.
STANDS_FOR = "_stands_for"
# What holds no tensor.
_PLAIN = {int, float, bool, str, type(None), slice, torch.dtype, torch.device, torch.Size}


@dataclass(frozen=True)
class Outer:
    """In the place of a tensor that no operation has made which was recorded: its number among those."""

    number: int


@dataclass(frozen=True)
class Seen:
    """A tensor from outside, as it was when it was seen: the `tensor` itself, weakly, and a `copy` of what it held.

    `needs_gradient`: whether it was a leaf that needs one. `problem`: why it cannot be kept, or "".
    """

    tensor: Callable[[], torch.Tensor | None]
    copy: torch.Tensor | None
    needs_gradient: bool = False
    problem: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return 0 if self.copy is None else self.copy.numel() * self.copy.element_size()


@dataclass(frozen=True)
class Recorded:
    """An operation; `module` is what was called, None for a function. Tensors are `Made` or `Outer` in `leaves`.

    `models`: by identity, those whose outputs it comes from. `random`: torch's random numbers before a module was
    called. `factor`: how many times as large the result was as what is recorded makes it.
    """

    function: Callable[..., Any] | None
    module: nn.Module | None
    leaves: list[Any]
    spec: pytree.TreeSpec
    results: tuple[int, ...]
    models: frozenset[int] = frozenset()
    random: RandomState | None = None
    factor: float = 1.0


class Recorder(TorchFunctionMode):
    """Records what is done with the outputs of models, and with parameters, where that leads to a gradient.

    What needs no gradient comes from outside: a target, a mask, what was detached. A function that a script has written
    for autograd is not seen; what it gives is then unexplained.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_result: dict[int, Recorded] = {}
        self.outer: dict[int, Seen] = {}
        self.records = True
        self._numbers: dict[int, tuple[ref[torch.Tensor], int]] = {}
        self._outer_numbers: dict[tuple[int, int], int] = {}
        self._next = self._next_outer = 0
        self._held_bytes, self._pruned_bytes = 0, 0
        self._has_left = False

    def __exit__(self, *raised: object) -> None:
        if not self._has_left:
            super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.is_seeing() or not _concerns(args, kwargs):
            return func(*args, **kwargs)
        self._tidy()
        function, given = _as_function(func, args)
        leaves, spec = pytree.tree_flatten((given, kwargs))
        places = [self._place(leaf) for leaf in leaves]
        made = func(*args, **kwargs)
        changes = _changes_its_first(func)
        results = tuple(tensors_of(args[0] if made is None and changes else made))
        if not all(map(_has_no_graph, results)):
            if changes and isinstance(places[0], Outer):
                places[0] = self._copy_of(places[0])
            self._note(function, None, (places, spec), results)
        return made

    def called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], make: Callable[..., Any]) -> Any:
        """Make a call of a module, and record it as one operation."""
        self._tidy()
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = [self._place(leaf) for leaf in leaves]
        random = RandomState.now()
        with self.paused():
            made = make(module, *args, **kwargs)
        results = tuple(tensors_of(made))
        if not all(map(_has_no_graph, results)):
            self._note(None, module, (places, spec), results, random)
        return made

    def scaled(self, tensor: torch.Tensor, made: torch.Tensor, factor: float) -> None:
        """Record that `made` is `tensor` multiplied by a factor, which is left out where it is done again."""
        number = self._number(tensor)
        if number is not None:
            leaves, spec = pytree.tree_flatten(((Made(number),), {}))
            self._note(torch.clone, None, (leaves, spec), (made,), factor=factor)

    def is_seeing(self) -> bool:
        """Whether what is done now leads to gradients of the script's, and is not traced or transformed."""
        is_apart = is_tracing() or peek_interpreter_stack() is not None  # type: ignore[no-untyped-call]
        return self.records and torch.is_grad_enabled() and not is_apart

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
        """Stop, and let all go that was recorded; where no other mode is in between, be in the way of nothing more."""
        self.records = False
        self.by_result, self.outer = {}, {}
        self._numbers, self._outer_numbers = {}, {}
        if _get_current_function_mode() is self:  # type: ignore[no-untyped-call]
            _pop_mode()  # type: ignore[no-untyped-call]
            self._has_left = True

    def _tidy(self) -> None:
        """Where much is held, let go what is not needed any more; where all of it is needed, everything."""
        if self._held_bytes > 2 * self._pruned_bytes + _LITTLE_BYTES:
            self._prune()
        if self._held_bytes > MOST_BYTES:
            self.forget()

    def _prune(self) -> None:
        """Let go what no tensor comes from that is still there."""
        self._numbers = {key: held for key, held in self._numbers.items() if held[0]() is not None}
        kept: dict[int, Recorded] = {}
        pending = [number for _tensor, number in self._numbers.values()]
        while pending:
            number = pending.pop()
            if number not in kept:
                kept[number] = self.by_result[number]
                pending += [leaf.number for leaf in kept[number].leaves if isinstance(leaf, Made)]
        used = {leaf.number for one in kept.values() for leaf in one.leaves if isinstance(leaf, Outer)}
        self.by_result = kept
        self.outer = {number: seen for number, seen in self.outer.items() if number in used}
        self._outer_numbers = {key: number for key, number in self._outer_numbers.items() if number in used}
        self._held_bytes = self._pruned_bytes = sum(seen.size for seen in self.outer.values())

    def _number(self, tensor: torch.Tensor) -> int | None:
        held = self._numbers.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else None

    def _place(self, leaf: Any) -> Any:
        """What stands for an argument: it is looked at before the operation, which may change it."""
        if not isinstance(leaf, torch.Tensor):
            holds = next(tensors_of(leaf), None) is not None
            return Outer(self._kept(Seen(lambda: None, None, problem=_hidden(leaf)))) if holds else own_copy(leaf)
        number = self._number(leaf)
        return Outer(self._seen(leaf)) if number is None else Made(number)

    def _seen(self, tensor: torch.Tensor) -> int:
        key = (id(tensor), _changes_of(tensor))
        number = self._outer_numbers.get(key)
        if number is not None and self.outer[number].tensor() is tensor:
            return number
        if tensor.requires_grad and not tensor.is_leaf:
            return self._kept(Seen(ref(tensor), None, problem=UNSEEN))
        number = self._outer_numbers[key] = self._kept(Seen(ref(tensor), own_copy(tensor), tensor.requires_grad))
        return number

    def _kept(self, seen: Seen) -> int:
        """Its number."""
        self._held_bytes += seen.size
        self.outer[self._next_outer] = seen
        self._next_outer += 1
        return self._next_outer - 1

    def _note(
        self,
        function: Callable[..., Any] | None,
        module: nn.Module | None,
        arguments: tuple[list[Any], pytree.TreeSpec],
        made: tuple[torch.Tensor, ...],
        random: RandomState | None = None,
        factor: float = 1.0,
    ) -> None:
        if not self.records:
            return
        numbers = range(self._next, self._next + len(made))
        self._next += len(made)
        before = [self.by_result[leaf.number].models for leaf in arguments[0] if isinstance(leaf, Made)]
        models = frozenset([id(module)] if module is not None else ()).union(*before)
        recorded = Recorded(function, module, *arguments, tuple(numbers), models, random, factor)
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


def _concerns(args: Any, kwargs: Any) -> bool:
    """Whether a tensor is among them that needs a gradient."""
    return any(map(_needs_gradient, args)) or any(map(_needs_gradient, kwargs.values()))


def _needs_gradient(one: Any) -> bool:
    """Of plain arguments without the help of pytree, which takes several times as long."""
    if isinstance(one, torch.Tensor):
        return one.requires_grad
    kind = type(one)
    if kind in _PLAIN:
        return False
    if kind is tuple or kind is list:
        return any(map(_needs_gradient, one))
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(one))


def _hidden(holder: Any) -> str:
    return f"it is called with a {type(holder).__name__}, whose tensors torch does not find; give tensors, or a dict"


def _as_function(func: Any, args: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What can be sent to another process, for what was called: a property of a tensor is got by its name."""
    property_name = getattr(getattr(func, "__self__", None), "__name__", "")
    if getattr(func, "__name__", "") == "__get__" and property_name:
        return getattr, (args[0], property_name)
    return getattr(func, STANDS_FOR, func), tuple(args)


def _changes_its_first(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
