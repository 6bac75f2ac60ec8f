"""Find the attributes of a model that a call reads: a compiled program has their values fixed in its code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from autocompile.workload.identity.facts import (
    attribute_texts,
    attributes_of,
    held_at,
    ignores_training,
    joined,
    names_in_code_of,
    roots_of,
    settings_of,
)
from autocompile.workload.identity.plain import text_of

_LOOKING_INTO_DICTIONARIES = frozenset({"vars", "__dict__"})
# The flags that `torch.compiler.is_compiling` and `is_exporting` return.
_FLAGS = ("_is_compiling_flag", "_is_exporting_flag")


class Reads:
    """The paths of the plain attributes that were read, including `training` and those of a module's `config`."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.roots = roots_of(model)
        self.paths: set[str] = set()

    def note(self, call: Callable[[], object]) -> None:
        """Record what a call of the model reads, both in eager and as if it were being compiled.

        All attributes count as read if the reads cannot be observed: the call fails, or the code accesses dictionaries
        of attributes, as with `vars(self)`.
        """
        try:
            for is_compiling in (False, True):
                with self.listening(), _as_if_compiling(is_compiling=is_compiling):
                    call()
        except Exception:  # whatever a model raises when its attributes have been taken out
            self.paths.update(attribute_texts(self._model))
        if names_in_code_of(self._model) & _LOOKING_INTO_DICTIONARIES:
            self.paths.update(attribute_texts(self._model))

    def texts(self) -> dict[str, str]:
        """Return the present values of these attributes, sorted by path."""
        places = {path: held_at(self.roots, path) for path in sorted(self.paths)}
        texts = {path: text_of(place[0].get(place[1])) for path, place in places.items() if place is not None}
        return {path: text for path, text in texts.items() if text is not None}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record what this thread's calls of the model read in the body.

        Each attribute is taken out of its module, so that Python calls `nn.Module.__getattr__` for it. The first such
        call records the read and puts the attribute back. An attribute that cannot be taken out counts as read.
        """
        modules = {id(module): (path, module) for path, module in self._modules()}
        taken = {key: self._take_out(path, module) for key, (path, module) in modules.items()}
        asked = nn.Module.__getattr__

        def answer(module: nn.Module, name: str) -> Any:
            held = taken.get(id(module), {})
            if name not in held:
                return asked(module, name)
            self.paths.add(joined(modules[id(module)][0], name))
            vars(module)[name] = held.pop(name)
            return vars(module)[name]

        nn.Module.__getattr__ = answer  # type: ignore[method-assign]
        try:
            with self._listening_to_settings(modules):
                yield
        finally:
            nn.Module.__getattr__ = asked  # type: ignore[method-assign]
            for key, held in taken.items():
                for name, value in held.items():
                    vars(modules[key][1]).setdefault(name, value)

    def _modules(self) -> Iterator[tuple[str, nn.Module]]:
        for root, top in self.roots.items():
            yield from ((joined(root, path), module) for path, module in top.named_modules())

    def _take_out(self, path: str, module: nn.Module) -> dict[str, Any]:
        own = [(where, name) for where, held, name in attributes_of(path, module) if held is vars(module)]
        if ignores_training(module):
            own = [(where, name) for where, name in own if name != "training"]
        cls = type(module)
        if cls.__getattr__ is not nn.Module.__getattr__ or cls.__getattribute__ is not nn.Module.__getattribute__:
            self.paths.update(where for where, _name in own)
            return {}
        # If the class has an attribute of the same name, Python would find that one instead.
        self.paths.update(where for where, name in own if hasattr(cls, name))
        return {name: vars(module).pop(name) for _where, name in own if not hasattr(cls, name)}

    @contextmanager
    def _listening_to_settings(self, modules: Mapping[int, tuple[str, nn.Module]]) -> Iterator[None]:
        """Do the same for plain objects that modules hold, such as a `config`, by a temporary class that records reads.

        A read of an object that several modules share is recorded under the path of each module, as each may later get
        a different object.
        """
        held: dict[int, tuple[Any, list[str]]] = {}
        for path, module in modules.values():
            for where, settings in settings_of(path, module):
                held.setdefault(id(settings), (settings, []))[1].append(where)
        owned = [(settings, type(settings), places) for settings, places in held.values()]
        swapped = [(settings, cls) for settings, cls, places in owned if self._swap(settings, cls, places)]
        try:
            yield
        finally:
            for settings, cls in swapped:
                object.__setattr__(settings, "__class__", cls)

    def _swap(self, value: Any, cls: type, places: list[str]) -> bool:
        plain = {name for name, held in vars(value).items() if text_of(held) is not None}
        paths = self.paths
        inherited: Any = cls.__getattribute__

        def getattribute(self: Any, name: str) -> Any:
            if name in plain:
                paths.update(f"{path}.{name}" for path in places)
            return inherited(self, name)

        try:
            noting = type(cls.__name__, (cls,), {"__getattribute__": getattribute, "__module__": cls.__module__})
            object.__setattr__(value, "__class__", noting)
        except TypeError:  # a class that cannot be swapped, such as one written in C
            paths.update(f"{path}.{name}" for path in places for name in plain)
            return False
        return True


@contextmanager
def _as_if_compiling(*, is_compiling: bool) -> Iterator[None]:
    """Let `torch.compiler.is_compiling()` return True if `is_compiling`, as it does while a program is traced."""
    compiler: Any = torch.compiler
    before = {flag: getattr(compiler, flag) for flag in _FLAGS if hasattr(compiler, flag)} if is_compiling else {}
    vars(compiler).update(dict.fromkeys(before, True))
    try:
        yield
    finally:
        vars(compiler).update(before)


def changed_by_a_call(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the first plain attribute that is new or has another value after a call than before it, or ""."""
    return next((path for path, text in after.items() if before.get(path) != text), "")
