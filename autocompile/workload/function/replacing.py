"""Intercept the calls of one function of a script, which is found by its name, wherever it is called from."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

import torch

from autocompile.workload.function.naming import FunctionName
from autocompile.workload.generating.imports import when_imported
from autocompile.workload.identity.libraries import is_torchs
from autocompile.workload.places import is_installed

# Makes a call in place of the program. It takes the original function, and its arguments by position and by name.
Pass = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Replacement:
    """Replaces a function by one that passes its calls on. `problem` tells why that is not possible, or is "".

    `decorate` is applied to a function that the script itself defines, because its calls begin while the script runs.
    """

    def __init__(self, name: FunctionName, passed: Pass) -> None:
        self.name, self._passed = name, passed
        where = f"module {name.module}" if name.module else "the script"
        self.problem = f"the script never imports {name.module}" if name.module else f"{where} never defines {name}"
        self._replaced: list[tuple[Any, Any]] = []

    def decorate(self, found: Any) -> Any:
        """Return the replacement of a function, or the function itself if it cannot be tuned."""
        method = type(found) if isinstance(found, staticmethod | classmethod) else None
        function = found.__func__ if method else found
        self.problem = _problem(self.name, function)
        if self.problem:
            return found
        passing = _passing(function, self._passed)
        self._replaced.append((passing, function))
        return method(passing) if method else passing

    def put_in(self, module: ModuleType) -> None:
        """Replace the function in the module that defines it."""
        *classes, own = self.name.path
        owner: Any = module
        for name in classes:
            owner = getattr(owner, name, None)
        found = vars(owner).get(own) if hasattr(owner, "__dict__") else None
        if found is None:
            defined = [name for name, value in vars(module).items() if isinstance(value, FunctionType)]
            there = ", ".join(name for name in defined if not name.startswith("_")) or "no function"
            self.problem = f"{self.name.module} defines no {'.'.join(self.name.path)}; it has {there}"
            return
        made = self.decorate(found)
        setattr(owner, own, made)
        if made is not found:
            _exchange(found, made)

    def undo(self) -> None:
        """Restore the function everywhere."""
        for passing, function in self._replaced:
            _exchange(passing, function)


@contextmanager
def function_replaced(replacement: Replacement) -> Iterator[None]:
    """Pass each outermost call of the function on, also if its module is imported only within the context.

    A function that the script itself defines is decorated as it is defined: see `run_as_main`.
    """
    try:
        with when_imported(replacement.name.module, replacement.put_in) if replacement.name.module else nullcontext():
            yield
    finally:
        replacement.undo()


def _problem(name: FunctionName, function: Any) -> str:
    if not isinstance(function, FunctionType):
        kind = type(function).__name__
        hint = "; use --module to tune a module" if isinstance(function, torch.nn.Module | type) else ""
        return f"{name} is not a function: it is a {kind}{hint}"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return f"{name} is a generator or a coroutine, and calling it computes nothing yet"
    return ""


def _passing(function: Callable[..., Any], passed: Pass) -> Callable[..., Any]:
    """Return a function that passes on each outermost call. A compiler sees the original function."""

    class Depth(threading.local):
        inside = False

    depth = Depth()

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or depth.inside:
            return function(*args, **kwargs)
        depth.inside = True
        try:
            return passed(function, args, kwargs)
        finally:
            depth.inside = False

    return call


def _exchange(one: Any, other: Any) -> None:
    """Replace `one` by `other` in the user's modules and in the classes that they contain."""
    for module in [found for found in list(sys.modules.values()) if _is_users(found)]:
        namespace = vars(module)
        for holder in (module, *(value for value in list(namespace.values()) if type(value) is type)):
            for name, value in list(vars(holder).items()):
                if value is one:
                    setattr(holder, name, other)
                elif isinstance(value, staticmethod | classmethod) and value.__func__ is one:
                    setattr(holder, name, type(value)(other))


def _is_users(module: Any) -> bool:
    """Return whether a module is the user's, so that it may hold the function."""
    if type(module) is not ModuleType:
        return False
    file = vars(module).get("__file__") or ""
    return module.__name__ == "__main__" or not (is_torchs(module.__name__) or is_installed(file))
