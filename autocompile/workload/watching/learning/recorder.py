"""Record the operations that lead from a model's call to a loss, while a script does them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch._C._functorch import peek_interpreter_stack
from torch.jit._trace import is_tracing
from torch.utils import _pytree as pytree

from autocompile.workload.state import RandomState
from autocompile.workload.training.recorded import Made, tensors_of
from autocompile.workload.watching.learning.interception import Interception
from autocompile.workload.watching.tally import own_copy

UNSEEN = (
    "its loss goes through code that cannot be recorded, such as its own torch.autograd.Function, compiled code, or "
    "what it computed from parameters before it created the optimizer"
)
# The maximum memory for copies of tensors from outside. Below the second value, unneeded copies are not searched for.
MOST_BYTES, _LITTLE_BYTES = 1024**3, 64 * 1024**2
# The attribute of a replacement function that holds the original function.
STANDS_FOR = "_stands_for"
# Types that hold no tensor.
_PLAIN = {int, float, bool, str, type(None), slice, torch.dtype, torch.device, torch.Size}


@dataclass(frozen=True)
class Outer:
    """A placeholder for a tensor from outside, which no recorded operation made: its number."""

    number: int


@dataclass(frozen=True)
class Seen:
    """A tensor from outside: a weak reference to the `tensor`, and a `copy` of its values when it was first seen.

    `needs_gradient` tells whether it was a leaf that needs a gradient. `problem` tells why it cannot be kept, or is "".
    """

    tensor: Callable[[], torch.Tensor | None]
    copy: torch.Tensor | None
    needs_gradient: bool = False
    problem: str = ""

    @property
    def size(self) -> int:
        """The size of the copy in bytes."""
        return 0 if self.copy is None else self.copy.numel() * self.copy.element_size()


@dataclass(frozen=True)
class Recorded:
    """An operation.

    `module` is the module that was called, or None for a function. In `leaves`, tensors are `Made` or `Outer`. `models`
    are the ids of the models whose outputs it depends on. `random` is torch's random state before a module was called.
    `factor` is the ratio of the script's result to that of the recorded operation.
    """

    function: Callable[..., Any] | None
    module: nn.Module | None
    leaves: list[Any]
    spec: pytree.TreeSpec
    results: tuple[int, ...]
    models: frozenset[int] = frozenset()
    random: RandomState | None = None
    factor: float = 1.0


class Recorder(Interception):
    """Records operations on models' outputs and on parameters that lead to a gradient.

    Tensors that need no gradient come from outside: a target, a mask, a detached tensor. A torch.autograd.Function of
    the script is not seen, and the origin of its result is unknown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_result: dict[int, Recorded] = {}
        self.outer: dict[int, Seen] = {}
        self._numbers: dict[int, tuple[ref[torch.Tensor], int]] = {}
        self._outer_numbers: dict[tuple[int, int], int] = {}
        self._next = self._next_outer = self._held_bytes = self._pruned_bytes = 0

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
        # Paused as a whole: an operation that is seen in the meantime could release what has its place already.
        with self.paused():
            leaves, spec = pytree.tree_flatten((args, kwargs))
            places = [self._place(leaf) for leaf in leaves]
            random = RandomState.now()
            made = make(module, *args, **kwargs)
            results = tuple(tensors_of(made))
            if not all(map(_has_no_graph, results)):
                self._note(None, module, (places, spec), results, random)
        return made

    def scaled(self, tensor: torch.Tensor, made: torch.Tensor, factor: float) -> None:
        """Record that `made` is `tensor` multiplied by a factor. The factor is left out when the tape is replayed."""
        number = self.number_of(tensor)
        if number is not None:
            leaves, spec = pytree.tree_flatten(((Made(number),), {}))
            with self.paused():
                self._note(torch.clone, None, (leaves, spec), (made,), factor=factor)

    def is_seeing(self) -> bool:
        """Return whether operations are recorded now: they lead to gradients, and are not traced or transformed."""
        is_apart = is_tracing() or peek_interpreter_stack() is not None  # type: ignore[no-untyped-call]
        return self.is_active() and torch.is_grad_enabled() and not is_apart

    def follows_another(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether an argument is an output of another model, or was made from one."""
        numbers = [self.number_of(one) for one in tensors_of((args, kwargs))]
        return any(number is not None and self.by_result[number].models - {id(module)} for number in numbers)

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of this tensor among the results of the operations, or None."""
        held = self._numbers.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else None

    def forget(self) -> None:
        """Stop recording and release everything."""
        self.by_result, self.outer, self._numbers, self._outer_numbers = {}, {}, {}, {}
        self.leave()

    def _tidy(self) -> None:
        """If much memory is held, release what is not needed. If that is not enough, stop recording."""
        if self._held_bytes > 2 * self._pruned_bytes + _LITTLE_BYTES:
            self._prune()
        if self._held_bytes > MOST_BYTES:
            self.forget()

    def _prune(self) -> None:
        """Release operations that no living tensor depends on."""
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

    def _place(self, leaf: Any) -> Any:
        """Return the placeholder for an argument, made before the operation may change the argument."""
        if not isinstance(leaf, torch.Tensor):
            holds = next(tensors_of(leaf), None) is not None
            return Outer(self._kept(Seen(lambda: None, None, problem=_hidden(leaf)))) if holds else own_copy(leaf)
        number = self.number_of(leaf)
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
        """Keep a tensor from outside and return its number."""
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
        if self.is_over:
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
        """Record a copy of a tensor from outside that is written into. Each replay writes into a new copy."""
        places, spec = pytree.tree_flatten(((place,), {}))
        number = self._next
        self._next += 1
        self.by_result[number] = Recorded(torch.clone, None, places, spec, (number,))
        return Made(number)


def _has_no_graph(tensor: torch.Tensor) -> bool:
    """Return whether no graph leads to a tensor: it is a leaf, such as a parameter, or needs no gradient."""
    return tensor.is_leaf or not tensor.requires_grad


def _changes_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written into."""
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001  torch has no public way


def _concerns(args: Any, kwargs: Any) -> bool:
    """Return whether a tensor that needs a gradient is among the arguments."""
    return any(map(_needs_gradient, args)) or any(map(_needs_gradient, kwargs.values()))


def _needs_gradient(one: Any) -> bool:
    """Check plain arguments without pytree, which takes several times as long."""
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
    """Return a function that can be pickled: a property of a tensor becomes a getattr of its name."""
    property_name = getattr(getattr(func, "__self__", None), "__name__", "")
    if getattr(func, "__name__", "") == "__get__" and property_name:
        return getattr, (args[0], property_name)
    return getattr(func, STANDS_FOR, func), tuple(args)


def _changes_its_first(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
