"""Find what a model's code reads outside of the model's modules: globals, closures, and members.

Members are those of the user's classes, objects, functions and modules. A call may set any of these.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from autocompile.workload.identity.bytecode import attributes_read
from autocompile.workload.identity.code import Code
from autocompile.workload.identity.members import members_of
from autocompile.workload.identity.plain import text_of


def outside_readers(code: Code) -> dict[str, Callable[[], Any]]:
    """Return what reads each, by name: "forward(scale)" is a variable of a function, "Net.scale" is a member."""
    return code.variables | dict(_members(code))


def outside_values(code: Code) -> dict[str, Any]:
    """Return the present values by name."""
    return {name: read() for name, read in outside_readers(code).items()}


def state_texts(code: Code) -> dict[str, str]:
    """Return the present plain values that the code both reads and stores, as texts."""
    variables = {name: read for name, read in code.variables.items() if name in code.stored}
    members = {name: read for name, read in _members(code) if name.rpartition(".")[2] in code.stored}
    values = {name: read() for name, read in (variables | members).items()}
    texts = {name: text_of(value) for name, value in values.items() if not _is_code(value)}
    return {name: text for name, text in texts.items() if text is not None}


def in_words(name: str) -> str:
    """Return "the variable `scale` of `forward`" for "forward(scale)", and other names in backquotes."""
    function, _, variable = name.partition("(")
    return f"the variable `{variable.partition(')')[0]}` of `{function}`" if variable else f"`{name}`"


def _members(code: Code) -> Iterator[tuple[str, Callable[[], Any]]]:
    read = {name for function in code.reached for name in attributes_read(function.__code__)}
    for name, holder in code.holders.items():
        for member, _value in members_of(holder):
            if member in read:
                yield f"{name}.{member}", _reader(holder, member)


def _reader(holder: Any, member: str) -> Callable[[], Any]:
    held = getattr(holder, "__dict__", {})
    return partial(held.get, member) if member in held else partial(getattr, holder, member, None)


def _is_code(value: Any) -> bool:
    return isinstance(value, types.ModuleType | torch.nn.Module) or callable(value)
