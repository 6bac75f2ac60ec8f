"""Find what a model's code reads outside of the model's modules: globals, closures, and members.

Members are those of the user's classes, objects, functions and modules. A call may set any of these.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any

import torch

from autocompile.workload.identity.bytecode import attributes_read
from autocompile.workload.identity.code import Code
from autocompile.workload.identity.members import is_pythons, members_of
from autocompile.workload.identity.plain import text_of

_ABSENT = object()


def outside_readers(code: Code) -> dict[str, Callable[[], Any]]:
    """Return what reads each, by name: "forward(scale)" is a variable of a function, "Net.scale" is a member."""
    return code.variables | dict(_members(code))


def outside_values(code: Code) -> dict[str, Any]:
    """Return the present values by name."""
    return {name: read() for name, read in outside_readers(code).items()}


def state_texts(code: Code) -> dict[str, str]:
    """Return what may be otherwise without a change of the code: see `Identity.state`."""
    variables = {name: read for name, read in code.variables.items() if name in code.stored}
    members = {name: read for name, read in _members(code) if name.rpartition(".")[2] in code.stored}
    values = {name: read() for name, read in (variables | members).items()}
    texts = {name: text_of(value) for name, value in values.items() if not _is_code(value)}
    return _where_set(code) | {name: text for name, text in texts.items() if text is not None}


def of_classes(code: Code) -> tuple[str, ...]:
    """Return the names of plain members and functions of the user's classes that the code reads and does not store."""
    read = _read_by(code)
    classes = (holder for holder in code.holders.values() if isinstance(holder, type))
    members = {member: value for cls in classes for member, value in members_of(cls) if member in read - code.stored}
    return tuple(sorted(member for member, value in members.items() if text_of(value) is not None))


def in_place_of_class(module: torch.nn.Module, names: Iterable[str]) -> list[str]:
    """Return which of these attributes of its class a module has itself, too."""
    return [name for name in names if name in vars(module) and hasattr(type(module), name)]


def _where_set(code: Code) -> dict[str, str]:
    """Return for each module's attribute that its class has whether the module has one in its place, by path."""
    names, found = of_classes(code), {}
    for root, top in code.roots.items():
        for path, module in top.named_modules():
            own = in_place_of_class(module, names)
            for name in (name for name in names if hasattr(type(module), name)):
                where = ".".join(filter(None, (root, path, name)))
                found[where] = "set on the module" if name in own else "as in its class"
    return found


def in_words(name: str) -> str:
    """Return "the variable `scale` of `forward`" for "forward(scale)", and other names in backquotes."""
    function, _, variable = name.partition("(")
    return f"the variable `{variable.partition(')')[0]}` of `{function}`" if variable else f"`{name}`"


def _members(code: Code) -> Iterator[tuple[str, Callable[[], Any]]]:
    read = _read_by(code)
    for name, holder in code.holders.items():
        # A module's members may also be imported by name.
        wanted = read | code.names if isinstance(holder, types.ModuleType) else read
        for member, reader in _readers(holder):
            is_wanted = member in wanted or "getattr" in code.names
            if is_wanted and not isinstance(getattr(type(holder), member, None), cached_property):
                yield f"{name}.{member}", reader


def _read_by(code: Code) -> set[str]:
    return {name for function in code.reached for name in attributes_read(function.__code__)}


def _readers(holder: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what reads each member of an object, and each that the object may set in place of one of its class."""
    held = getattr(holder, "__dict__", {})
    present = [member for member, _value in members_of(holder)]
    for member in present:
        yield member, partial(held.get, member) if member in held else partial(getattr, holder, member, None)
    if held and not isinstance(holder, type | types.ModuleType | types.FunctionType):
        of_classes = {member for cls in type(holder).__mro__[:-1] for member in vars(cls) if not is_pythons(member)}
        yield from ((member, partial(held.get, member, _ABSENT)) for member in sorted(of_classes.difference(present)))


def _is_code(value: Any) -> bool:
    return isinstance(value, types.ModuleType | torch.nn.Module) or callable(value)
