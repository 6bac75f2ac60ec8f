"""Find what a function takes from elsewhere than its arguments: modules, tensors and values, and where they are stored.

A compiled program contains all of it as constants. Therefore everything that the code mentions must be of a kind whose
changes can be detected before each call. A function that uses anything else is not tuned.
"""

from __future__ import annotations

import argparse
import copy
import enum
import functools
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autocompile.workload.function.acts import acts_of
from autocompile.workload.identity.bytecode import attributes_stored, names_in, variables_stored
from autocompile.workload.identity.code import Code
from autocompile.workload.identity.libraries import is_library
from autocompile.workload.identity.plain import text_of

_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, functools.partial)
_CONSTANT = (
    bool, int, float, complex, str, bytes, type(None), types.EllipsisType, range, slice, enum.Enum,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_CONTAINERS = (tuple, list, set, frozenset, dict)
# Library classes whose objects consist only of their attributes.
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
# Names that read attributes which the code does not mention by name.
_ASKING = frozenset({"getattr", "vars", "__dict__"})
_DEEPEST = 8


@dataclass(frozen=True)
class Place:
    """A global, a closure variable or an attribute: `owner` holds `held` under `name`.

    `version` is how often a tensor was written to. `copied` is a copy of a container's contents.
    """

    owner: Any
    name: str
    held: Any
    version: int = 0
    copied: Any = None

    @property
    def now(self) -> Any:
        """What is stored there now, or None if there is nothing any more."""
        if isinstance(self.owner, types.CellType):
            return self.owner.cell_contents
        return self.owner.get(self.name)

    def is_kept(self) -> bool:
        """Return whether it holds the same object or an equal value, unchanged."""
        now = self.now
        if isinstance(now, _CONTAINERS):
            if self.copied is None:
                return now is self.held
            return type(now) is type(self.held) and _is_constant(now) and bool(now == self.copied)
        if isinstance(now, _CONSTANT):
            return now is self.held or (type(now) is type(self.held) and now == self.held)
        return now is self.held and version_of(now) == self.version

    @property
    def text(self) -> str:
        """The value as text, if it is one. Equal for equal values in every process."""
        is_value = isinstance(self.held, (*_CONSTANT, *_CONTAINERS))
        return f"{self.name} {text_of(self.held)}" if is_value else ""


def version_of(tensor: Any) -> int:
    """Return torch's count of writes to a tensor, or 0 for an inference tensor, which has no count."""
    return 0 if not isinstance(tensor, torch.Tensor) or tensor.is_inference() else tensor._version  # noqa: SLF001


class Surroundings:
    """What a call of a user's function may run and use.

    `modules` are by name. `places` are where modules, code, tensors and values are stored. `act` describes what the
    function does besides computing, or is "". `unseen` names something that it uses whose changes would not be
    detected, or is "".
    """

    def __init__(self, function: Any) -> None:
        code = Code()
        code.follow(function, "")
        self.modules: dict[str, nn.Module] = dict(code.roots)
        own = [one for one in code.reached if not _is_a_modules(one, code)]
        self._names = None if not _ASKING.isdisjoint(code.names) else code.names
        self._unseen: list[str] = []
        self._entered: set[int] = set()
        found = [place for one in own for place in self._of_function(one)]
        found += [place for one in _bound(function) for place in self._within(one, type(one).__name__, 0)]
        self.places = tuple(_unique(found))
        self.act = next((act for one in own for act in acts_of(one)), "")
        self.unseen = next(iter(self._unseen), "")

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that are not part of a module."""
        return {place.name: place.held for place in self.places if isinstance(place.held, torch.Tensor)}

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, and which parameters of the modules have gradients. Equal if a call computes the same."""
        learning = (
            f"{name} {[parameter.requires_grad for parameter in module.parameters()]}"
            for name, module in self.modules.items()
        )
        return (*sorted(filter(None, (place.text for place in self.places))), *learning)

    def moved(self) -> str:
        """Return the name of a place that has changed, or ""."""
        return next((place.name for place in self.places if not place.is_kept()), "")

    def _of_function(self, function: types.FunctionType) -> Iterator[Place]:
        """Yield the globals and closure variables that a function mentions and does not write."""
        stored = {*variables_stored(function.__code__), *attributes_stored(function.__code__)}
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield from self._of(cell, free, cell.cell_contents, 0)
            except ValueError:  # a variable that is not bound yet
                continue
        for name in names_in(function.__code__):
            if name in function.__globals__ and name not in stored and not _is_pythons(name):
                yield from self._of(function.__globals__, name, function.__globals__[name], 0)

    def _of(self, owner: Any, name: str, held: Any, depth: int) -> Iterator[Place]:
        """Yield a place, and the places within what it holds."""
        if isinstance(held, _CONTAINERS) and _is_constant(held):
            yield Place(owner, name, held, copied=copy.deepcopy(held))
            return
        yield Place(owner, name, held, version_of(held))
        yield from self._within(held, name, depth)

    def _within(self, held: Any, name: str, depth: int) -> Iterator[Place]:
        """Yield what the code mentions of an object, a class or a user's module. Each is visited once."""
        if isinstance(held, (nn.Module, torch.Tensor, *_CONSTANT)) or id(held) in self._entered:
            return
        self._entered.add(id(held))
        for bound in _bound(held):
            yield from self._within(bound, name, depth + 1)
        members = _members(held)
        if members is None or depth > _DEEPEST:
            self._unseen.append(f"{name}, a {type(held).__name__}")
            return
        for member, value in list(members.items()):
            is_mentioned = (self._names is None or member in self._names) and not _is_pythons(member)
            if is_mentioned and not isinstance(value, property | staticmethod | classmethod):
                yield from self._of(members, member, value, depth + 1)


def _members(held: Any) -> Mapping[str, Any] | None:
    """Return an object's attributes, {} if it never changes, or None if it is of an unknown kind."""
    if isinstance(held, types.ModuleType | type):
        return {} if is_library(held) else vars(held)
    if isinstance(held, _CODE):
        return {}
    is_seen = isinstance(held, _NAMESPACES) or not is_library(type(held))
    return vars(held) if is_seen and hasattr(held, "__dict__") and not isinstance(held, _CONTAINERS) else None


def _is_constant(value: Any) -> bool:
    """Return whether a container holds only values, so that a copy shows whether it has changed."""
    if isinstance(value, dict):
        return all(_is_constant(one) for pair in value.items() for one in pair)
    if isinstance(value, _CONTAINERS):
        return all(map(_is_constant, value))
    return isinstance(value, _CONSTANT)


def _bound(function: Any) -> Iterator[Any]:
    """Yield the objects that are bound to a function."""
    if isinstance(function, functools.partial):
        yield from function.args
        yield from function.keywords.values()
        yield from _bound(function.func)
    elif isinstance(function, types.MethodType):
        yield function.__self__


def _is_pythons(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_a_modules(function: types.FunctionType, code: Code) -> bool:
    """Return whether it is a method of one of the modules, which are handled as a whole."""
    owner = function.__qualname__.rpartition(".")[0]
    classes = {cls.__qualname__ for root in code.roots.values() for one in root.modules() for cls in type(one).__mro__}
    return bool(owner) and owner in classes


def _unique(places: list[Place]) -> Iterator[Place]:
    seen = set()
    for place in places:
        if (id(place.owner), place.name) not in seen:
            seen.add((id(place.owner), place.name))
            yield place
