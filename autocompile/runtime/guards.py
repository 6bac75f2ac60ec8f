"""Check whether a call is one that a compiled program was made for. The program itself checks nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.program import ConstantGuard, Program, TensorGuard
from autocompile.runtime.devices import GPU_ALIGNMENT
from autocompile.runtime.differing import differing_arguments, nested_otherwise
from autocompile.runtime.tensor_guards import Confirmation, confirmation_of
from autocompile.workload.forms import parameter_names

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
# The largest number of shapes of calls that are recognized at once. Other calls are examined argument by argument.
_MOST_ACCEPTED = 64
_NO_SHAPE = torch.Size()


@dataclass(frozen=True)
class Refusal:
    """Why a program does not take a call: a `kind` to count by, and a message about this call.

    `of_form` is true if the call has other arguments than the program takes. Their values were then not checked.
    """

    kind: str
    message: str
    of_form: bool = False

    def or_nearer(self, other: Refusal) -> Refusal:
        """Choose between two programs' refusals. If only one program takes these arguments, choose its refusal."""
        return other if self.of_form and not other.of_form else self


class Guard:
    """Return the program's tensors from a call's arguments, in the program's order, or a refusal.

    `device` is what the program runs on. Tensors of its type must be on exactly this device; other tensors must be on
    the type of device on which they were when the program was packed. If the program was made for contiguous or
    channels_last tensors, then a tensor in another layout is copied.
    """

    def __init__(self, program: Program, model: Any, device: torch.device) -> None:
        self._positional = program.positional
        self._keywords = program.keywords
        self._names = parameter_names(model)
        self._spec = pytree.treespec_loads(program.input_spec)
        self._flat = all(child.is_leaf() for part in self._spec.children() for child in part.children())
        ranges = {axis.name: (axis.low, axis.high) for axis in program.axes}
        self._checks = [_check_for(guard, ranges, device) for guard in program.guards]
        self._device_type = device.type
        self._all_tensors = all(isinstance(guard, TensorGuard) for guard in program.guards)
        self._accepted: dict[tuple[torch.Size, bool], Confirmation] = {}
        # Of the last call that was recognized, because most calls are like the previous one.
        self._latest: Confirmation = confirmation_of(())

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor] | Refusal:
        """Return the tensors to run on, or why the program does not take this call."""
        leaves = self._leaves(args, kwargs)
        # Under autocast or a functional transform this does not confirm, because the dispatch keys differ.
        if leaves is not None and self._latest(*leaves):
            return self._ready(leaves)
        return self._looked_at(leaves, args, kwargs)

    def _looked_at(
        self, leaves: list[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[torch.Tensor] | Refusal:
        if torch.is_autocast_enabled(self._device_type):
            return Refusal("autocast", "it is called under torch.autocast")
        if torch._C._functorch.maybe_current_level() is not None:  # noqa: SLF001
            return Refusal("transform", "it is called under a functional transform")
        if leaves is None:
            return self._of_form(args, kwargs)
        if not self._all_tensors or not leaves:
            return self._examined(leaves)
        first = leaves[0].shape if type(leaves[0]) in _PLAIN_TENSORS else _NO_SHAPE
        kind = (first, torch.is_inference_mode_enabled())
        accepted = self._accepted.get(kind)
        if accepted is not None and accepted(*leaves):
            self._latest = accepted
            return self._ready(leaves)
        tensors = self._examined(leaves)
        if accepted is None and _passed_on(leaves, tensors) and len(self._accepted) < _MOST_ACCEPTED:
            self._accepted[kind] = self._latest = confirmation_of(leaves)
        return tensors

    def _ready(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        return [_aligned(leaf) for leaf in leaves] if self._device_type == "cuda" else leaves

    def _examined(self, leaves: list[Any]) -> list[torch.Tensor] | Refusal:
        tensors: list[torch.Tensor] = []
        sizes: dict[str, int] = {}
        for check, leaf in zip(self._checks, leaves, strict=True):
            refusal = check(leaf, sizes, tensors)
            if refusal is not None:
                return refusal
        return tensors

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        if len(args) != self._positional:
            moved = self._in_form(args, kwargs)
            if moved is None:
                return None
            args, kwargs = moved
        if len(kwargs) != len(self._keywords):
            return None
        try:
            ordered = list(map(kwargs.__getitem__, self._keywords))
        except KeyError:
            return None
        if self._flat:
            return [*args, *ordered]
        leaves, spec = pytree.tree_flatten((args, dict(zip(self._keywords, ordered, strict=True))))
        return leaves if spec == self._spec else None

    def _in_form(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the same call with as many positional arguments as the program has, going by the parameters' names."""
        if max(len(args), self._positional) > len(self._names):
            return None
        named = dict(zip(self._names, args, strict=False))
        if named.keys() & kwargs.keys():
            return None  # let the model itself raise the error
        named.update(kwargs)
        try:
            moved = tuple(named.pop(name) for name in self._names[: self._positional])
        except KeyError:
            return None
        return moved, named

    def _of_form(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Refusal:
        differing = differing_arguments(self._names, self._positional, self._keywords, args, kwargs)
        if not differing:
            moved_args, moved = self._in_form(args, kwargs) or (args, kwargs)
            differing = nested_otherwise(self._spec, self._keywords, moved_args, moved)
        return Refusal(differing, differing, of_form=True)


Check = Callable[[Any, dict[str, int], list[torch.Tensor]], Refusal | None]


def _check_for(guard: TensorGuard | ConstantGuard, ranges: dict[str, tuple[int, int]], device: torch.device) -> Check:
    return _constant_check(guard) if isinstance(guard, ConstantGuard) else _TensorCheck(guard, ranges, device)


def _constant_check(guard: ConstantGuard) -> Check:
    expected = ast.literal_eval(guard.literal)

    def check(leaf: Any, _sizes: dict[str, int], _tensors: list[torch.Tensor]) -> Refusal | None:
        if leaf is expected or (type(leaf) is type(expected) and repr(leaf) == guard.literal):
            return None
        return Refusal(f"value of {guard.path}", f"{guard.path} is {leaf!r:.80}, not {guard.literal}")

    return check


class _TensorCheck:
    """Check whether a tensor is of the kind and shape that the program was made for."""

    def __init__(self, guard: TensorGuard, ranges: dict[str, tuple[int, int]], device: torch.device) -> None:
        self._where, self._shape, self._stride = guard.path, guard.shape, guard.stride
        self._dtype = getattr(torch, guard.dtype)
        self._device = device if guard.device_type == device.type else torch.device(guard.device_type)
        self._fixed = [(axis, size) for axis, size in enumerate(guard.shape) if isinstance(size, int)]
        self._free = [(axis, name, *ranges[name]) for axis, name in enumerate(guard.shape) if isinstance(name, str)]
        self._into_layout = _LAYOUTS[guard.layout](guard)
        self._on_gpu = self._device.type == "cuda"

    def __call__(self, leaf: Any, sizes: dict[str, int], tensors: list[torch.Tensor]) -> Refusal | None:
        refusal = self._of_kind(leaf) or self._of_shape(leaf, sizes)
        if refusal is not None:
            return refusal
        laid = self._into_layout(leaf)
        if laid is None:
            return self._refuse("layout", f"has strides {leaf.stride()}, not {self._stride}")
        tensors.append(_aligned(laid) if self._on_gpu else laid)
        return None

    def _of_kind(self, leaf: Any) -> Refusal | None:
        if type(leaf) not in _PLAIN_TENSORS:
            return self._refuse("type", f"is a {type(leaf).__name__}, not a tensor")
        if leaf.dtype is not self._dtype:
            return self._refuse("dtype", f"is {leaf.dtype}, not {self._dtype}")
        if leaf.device != self._device:
            return self._refuse("device", f"is on {leaf.device}, not on {self._device}")
        if leaf.layout is not torch.strided or leaf.is_neg():
            return self._refuse("layout", f"is {leaf.layout}, or a negated view")
        return None

    def _of_shape(self, leaf: torch.Tensor, sizes: dict[str, int]) -> Refusal | None:
        shape = leaf.shape
        if len(shape) != len(self._shape):
            return self._another_shape(shape)
        for axis, size in self._fixed:
            if shape[axis] != size:
                return self._another_shape(shape)
        for axis, name, low, high in self._free:
            size = shape[axis]
            if not low <= size <= high or sizes.setdefault(name, size) != size:
                return self._another_shape(shape)
        return None

    def _another_shape(self, shape: torch.Size) -> Refusal:
        ranges = "".join(f", {name} from {low} to {high}" for _axis, name, low, high in self._free)
        wanted = ", ".join(str(size) for size in self._shape)
        return self._refuse("shape", f"has shape {tuple(shape)}, not ({wanted}){ranges}")

    def _refuse(self, kind: str, fault: str) -> Refusal:
        return Refusal(f"{kind} of {self._where}", f"{self._where} {fault}")


def _passed_on(leaves: list[Any], tensors: list[torch.Tensor] | Refusal) -> bool:
    """Return whether a call was accepted without a copy. Calls with copies have to be examined each time."""
    return isinstance(tensors, list) and all(map(is_, leaves, tensors))


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if tensor.data_ptr() % GPU_ALIGNMENT else tensor


def _as_contiguous(_guard: TensorGuard) -> Callable[[torch.Tensor], torch.Tensor | None]:
    return lambda leaf: leaf if leaf.is_contiguous() else leaf.contiguous()


def _as_channels_last(_guard: TensorGuard) -> Callable[[torch.Tensor], torch.Tensor | None]:
    return lambda leaf: leaf.contiguous(memory_format=torch.channels_last)


def _as_strided(guard: TensorGuard) -> Callable[[torch.Tensor], torch.Tensor | None]:
    return lambda leaf: leaf if leaf.stride() == guard.stride else None


_LAYOUTS = {"contiguous": _as_contiguous, "channels_last": _as_channels_last, "strided": _as_strided}
