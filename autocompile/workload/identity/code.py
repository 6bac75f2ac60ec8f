"""Find the user's code that a call of a model may run, and what this code takes from elsewhere.

The search starts at `forward` and follows names: a method is included if included code mentions its name. Library code
is identified by name only, unless it was recorded as the user's own, because a package under development is installed
in production.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import torch
from torch import nn

from autocompile.workload.identity.bytecode import (
    attributes_stored,
    digest_of,
    globals_in,
    names_in,
    variables_stored,
)
from autocompile.workload.identity.libraries import is_from_library, is_library, is_torchs, package_of
from autocompile.workload.identity.members import (
    CALLABLES,
    UNBOUND,
    callables_in,
    contents,
    defaults,
    is_pythons,
    opened,
    wrapped_by,
)
from autocompile.workload.identity.plain import text_of

# Methods that Python runs at other times than a call of the object.
_NOT_CALLED = frozenset(
    f"__{name}__"
    for name in (
        *("init", "repr", "str", "getstate", "setstate", "reduce", "del", "dir", "init_subclass", "post_init"),
        *("copy", "deepcopy"),
    )
)
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_NO_OBJECTS = (nn.Module, torch.Tensor, types.ModuleType, type)
_PLAIN = frozenset({bool, int, float, str, type(None), tuple, list, dict, set, OrderedDict})
# How deeply modules within modules are searched.
_DEEPEST = 3
_T = TypeVar("_T")


class Code:
    """What is found starting from a model. Everything is visited once.

    `functions` has a digest of each, by qualified name. `values` has the plain values that they use, by name. `names`
    are all names in them. `roots` are the modules that are called, by name. `reached` are the functions themselves.
    `variables` reads their globals and closures, by function and name. `holders` are the user's classes and objects and
    the functions, whose members the code may change, by name. `stored` are the attributes and the variables that it
    stores, the latter named as in `variables`.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self.functions: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.names: set[str] = {"forward", "__call__"}
        self.roots: dict[str, nn.Module] = {}
        self.reached: list[types.FunctionType] = []
        self.variables: dict[str, Callable[[], Any]] = {}
        self.holders: dict[str, Any] = {}
        self.stored: set[str] = set()
        self._keys: dict[tuple[int, str, str | int], str] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._known = frozenset(known)
        self._known_classes = {name.rpartition(".")[0] for name in known} - {""}
        self._is_own: dict[type, bool] = {}
        self._held: dict[str, str] = {}
        self._seen: set[int] = set()
        self._waiting: list[tuple[str, Any, str]] = []

    def follow(self, thing: Any, name: str) -> None:
        """Take in a model, a function, or anything that code mentions as `name`.

        Then everything that the code mentions in turn is taken in.
        """
        self._take(thing, name)
        progress = True
        while progress:
            ready = [one for one in self._waiting if self._is_mentioned(one[0])]
            self._waiting = [one for one in self._waiting if not self._is_mentioned(one[0])]
            for member, value, owner in ready:
                self._take_held(member, value, owner)
            progress = bool(ready)
        for held, member in self._held.items():
            if member in self.stored:
                self.values.pop(held, None)

    def _is_mentioned(self, member: str) -> bool:
        if is_pythons(member):
            return member not in _NOT_CALLED
        return member in self.names or "getattr" in self.names

    def _take_held(self, member: str, value: Any, owner: str) -> None:
        """Take in a member of a class or an object. A plain one is a value, unless the code turns out to write it."""
        if _is_plain(value):
            self._held[self._put(self.values, f"{owner}.{member}", str(text_of(value)))] = member
        self._take(value, f"{owner}.{member}")

    def _take(self, thing: Any, name: str) -> None:
        for position, one in callables_in(thing):
            self._take(one, f"{name}[{position}]")
        if _is_plain(thing):
            self._put(self.values, name, str(text_of(thing)))
            return
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        taking = next((take for kind, take in self._ways if isinstance(thing, kind)), Code._take_object)
        taking(self, thing, name)

    def _take_module(self, thing: nn.Module, name: str) -> None:
        self.roots[name] = thing
        for module in thing.modules():
            if id(type(module)) not in self._seen:
                self._take_class(type(module), "")
            for attribute, value in vars(module).items():
                if attribute in _OF_EVERY_MODULE:
                    continue
                for one in (value, *(one for _position, one in callables_in(value))):
                    if isinstance(one, CALLABLES):
                        self._waiting.append((attribute, one, type(module).__qualname__))
                if self._is_own_object(value):  # only its methods; its attributes count as the module's
                    self._waiting.append((attribute, type(value), type(module).__qualname__))
                    if not hasattr(value, "__dict__"):
                        self._put(self.holders, f"{type(module).__qualname__}.{attribute}", value)

    def _take_class(self, thing: type, _name: str) -> None:
        for cls in thing.__mro__:
            if (thing is not cls and id(cls) in self._seen) or not self._is_own_class(cls):
                continue
            self._seen.add(id(cls))
            self._put(self.holders, cls.__qualname__, cls)
            # Sorted, because a class that was pickled by value has its members in another order.
            for member, value in sorted(vars(cls).items()):
                self._waiting += [(member, one, cls.__qualname__) for one in opened(member, value)]

    def _take_function(self, thing: types.FunctionType, _name: str) -> None:
        wrapped = getattr(thing, "__wrapped__", None)
        if not self._is_own_function(thing):
            if wrapped is not None:
                self._take(wrapped, thing.__qualname__)
            return
        key = self._note(thing)
        self.reached.append(thing)
        self._put(self.holders, thing.__qualname__, thing)
        self.names |= set(names_in(thing.__code__))
        for parameter, value in defaults(thing):
            self._take(value, f"{key}({parameter})")
        stored = set(variables_stored(thing.__code__))
        self.stored.update(attributes_stored(thing.__code__))
        for free, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
            self._take_variable(f"{key}({free})", functools.partial(contents, cell), is_stored=free in stored)
        for read in dict.fromkeys(globals_in(thing.__code__)):
            if (read in thing.__globals__ or read in stored) and not is_pythons(read):
                reading = functools.partial(thing.__globals__.get, read)
                self._take_variable(f"{key}({read})", reading, is_stored=read in stored)
                self._take_members(reading(), read, thing)
            elif (module := _imported(read, thing)) is not None:
                self._take_members(module, read, thing)

    def _take_variable(self, name: str, read: Callable[[], Any], *, is_stored: bool) -> None:
        """Take in a global or a closure. The present value of one that the code stores identifies nothing."""
        if (value := read()) is UNBOUND:
            return
        kept = self._put(self.variables, name, read)
        if is_stored:
            self.stored.add(kept)
        else:
            self._take(value, name.rpartition("(")[2].removesuffix(")"))

    def _take_members(self, thing: Any, name: str, mentioned_by: types.FunctionType, depth: int = 0) -> None:
        """Take in what code mentions of a module that it also mentions, if the module is the user's."""
        if not isinstance(thing, types.ModuleType):
            return
        is_own = not is_from_library(thing.__name__, thing.__dict__.get("__file__")) or name in self._known_classes
        for member in names_in(mentioned_by.__code__):
            value = vars(thing).get(member)
            if value is not None and (is_own or not self._known.isdisjoint({f"{name}.{member}", _qualname(value)})):
                self._take(value, f"{name}.{member}")
            if is_own and isinstance(value, types.ModuleType) and depth < _DEEPEST:
                self._take_members(value, f"{name}.{member}", mentioned_by, depth + 1)
        if is_own:
            self._put(self.holders, name, thing)

    def _take_partial(self, thing: functools.partial[Any], name: str) -> None:
        for position, value in enumerate(thing.args):
            self._take(value, f"{name}[{position}]")
        for keyword, value in thing.keywords.items():
            self._take(value, f"{name}[{keyword}]")
        self._take(thing.func, name)

    def _take_method(self, thing: types.MethodType, name: str) -> None:
        self._take(thing.__func__, name)
        self._take(thing.__self__, name)

    def _take_object(self, thing: Any, name: str) -> None:
        """Take in an object of a user's class: its methods, and its plain attributes. Also a function with a cache."""
        if (wrapped := wrapped_by(thing)) is not None:
            self._take(wrapped, name)
        is_known = name in self._known_classes and type(thing) not in _PLAIN and not isinstance(thing, _NO_OBJECTS)
        if not is_known and not self._is_own_object(thing):
            return
        self._put(self.holders, name, thing)
        self._take_class(type(thing), name)
        for attribute, value in getattr(thing, "__dict__", {}).items():
            self._waiting.append((attribute, value, name))

    _ways: tuple[tuple[type, Callable[[Code, Any, str], None]], ...] = (
        (nn.Module, _take_module),
        (type, _take_class),
        (types.FunctionType, _take_function),
        (functools.partial, _take_partial),
        (types.MethodType, _take_method),
    )

    def _put(self, facts: dict[str, _T], name: str, fact: _T) -> str:
        """Keep a fact and return its name. Further facts of the same name are numbered."""
        same = (id(facts), name, fact if isinstance(fact, str) else id(fact))
        if same not in self._keys:
            count = self._counts[id(facts), name] = self._counts.get((id(facts), name), 0) + 1
            key = name if count == 1 else f"{name}#{count}"
            self._keys[same], facts[key] = key, fact
        return self._keys[same]

    def _note(self, function: types.FunctionType) -> str:
        """Keep the function's digest under its name."""
        return self._put(self.functions, function.__qualname__, digest_of(function))

    def _is_own_function(self, function: types.FunctionType) -> bool:
        module = function.__module__ or ""
        library = is_from_library(module, function.__code__.co_filename)
        # A decorator's wrapper has the name and the module of the function that it decorates, but the globals of its
        # own module. A library's wrapper of a user's function is not the user's.
        home = str(function.__globals__.get("__name__", ""))
        is_known = function.__qualname__ in self._known and package_of(home) == package_of(module)
        return not library or (is_known and not is_torchs(module))

    def _is_own_class(self, cls: type) -> bool:
        found = self._is_own.get(cls)
        if found is None:
            known = cls.__qualname__ in self._known_classes and not is_torchs(cls.__module__)
            found = self._is_own[cls] = known or not is_library(cls)
        return found

    def _is_own_object(self, thing: Any) -> bool:
        """Return whether a call may use its code or attributes: it is no module, tensor or library's object."""
        kind = type(thing)
        if kind in _PLAIN or issubclass(kind, _NO_OBJECTS):
            return False
        return kind is types.SimpleNamespace or self._is_own_class(kind)


def _is_plain(thing: Any) -> bool:
    """Return whether it is identified by its value, and is not code that could be searched."""
    return not isinstance(thing, (type, *CALLABLES)) and text_of(thing) is not None


def _imported(name: str, function: types.FunctionType) -> types.ModuleType | None:
    """Return the module that a function imports itself by this name, absolute or relative to its package."""
    package = function.__globals__.get("__package__") or ""
    return sys.modules.get(name) or sys.modules.get(f"{package}.{name}")


def _qualname(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", ""))


def code_of(model: object, known: Collection[str] = ()) -> Code:
    """Return the code that a call of a model may run. Code that is `known` as the user's counts as such."""
    code = Code(known)
    code.follow(model, "")
    return code
