"""What belongs to a class, an object or a function."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from autocompile.workload.identity.plain import text_of

# The class of functions behind `functools.lru_cache` and `functools.cache`. Python gives it no public name.
CACHED: Any = type(functools.cache(len))
CALLABLES = (types.FunctionType, types.MethodType, functools.partial, CACHED)
# The value of a closure's variable that is not bound yet.
UNBOUND = object()
_NOTHING = object()


def members_of(holder: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an object has itself, including those in slots, without Python's own."""
    for name, value in getattr(holder, "__dict__", {}).items():
        if not is_pythons(name):
            yield name, value
    for cls in () if isinstance(holder, type) else type(holder).__mro__:
        names = vars(cls).get("__slots__", ())
        for name in [names] if isinstance(names, str) else names:
            mangled = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") else name
            value = getattr(holder, mangled, _NOTHING)
            if value is not _NOTHING and not is_pythons(name):
                yield mangled, value


def callables_in(thing: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the functions in a list, a tuple or a dictionary, each with its position."""
    if isinstance(thing, list | tuple | dict):
        items = thing.items() if isinstance(thing, dict) else enumerate(thing)
        yield from ((position, one) for position, one in items if isinstance(one, CALLABLES))


def opened(name: str, member: Any) -> Iterator[Any]:
    """Yield what may be run or read of a class's member.

    Members that are not functions count if they are plain values.
    """
    if isinstance(member, staticmethod | classmethod):
        yield member.__func__
    elif isinstance(member, property):
        yield from filter(None, (member.fget, member.fset))
    elif isinstance(member, functools.cached_property | functools.partialmethod):
        yield member.func
    elif isinstance(member, types.FunctionType) or (not is_pythons(name) and text_of(member) is not None):
        yield member
    elif (wrapped := wrapped_by(member)) is not None:
        yield wrapped


def defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the parameters that have default values, each with its value."""
    code, given = function.__code__, function.__defaults__ or ()
    yield from zip(code.co_varnames[code.co_argcount - len(given) : code.co_argcount], given, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def contents(cell: types.CellType) -> Any:
    """Return the value of a closure's variable, or UNBOUND."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


def wrapped_by(thing: Any) -> Any:
    """Return the function behind an object that a library's decorator put in its place, or None."""
    return getattr(thing, "__dict__", {}).get("__wrapped__")


def is_pythons(name: str) -> bool:
    """Return whether Python defines this name, like `__name__`, whose value depends on how a script is run."""
    return name.startswith("__") and name.endswith("__")
