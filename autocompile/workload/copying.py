"""Copy a model, together with the functions that its modules hold."""

from __future__ import annotations

import copy
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

from torch import nn

T = TypeVar("T")
_CONTAINERS = (list, tuple, set, frozenset, dict)


def copied(model: T, memo: dict[int, Any] | None = None) -> T:
    """Return a deep copy of a model, or of a structure that holds models; `memo` is that of `copy.deepcopy`.

    `copy.deepcopy` shares functions. If a module holds a function that refers to a module of the model, such as
    `self.mlpf = lambda x: m.c_proj(m.act(m.c_fc(x)))`, then the copy would still compute with the original's weights.
    Here the copy's function refers to the copies, through its closure or its default values. Functions are found among
    a module's attributes, and in lists and dicts among these, such as its hooks. Functions in other objects are shared.
    """
    memo = {} if memo is None else memo
    made = copy.deepcopy(model, memo)
    modules = {id(one): one for one in memo.values() if isinstance(one, nn.Module)}
    for module in modules.values():
        _replace_functions(vars(module), memo)
        for value in list(vars(module).values()):
            if isinstance(value, list | dict):
                _replace_functions(value, memo)
    return made


def _replace_functions(holder: MutableMapping[Any, Any] | list[Any], memo: dict[int, Any]) -> None:
    for key, value in list(enumerate(holder) if isinstance(holder, list) else holder.items()):
        if isinstance(value, FunctionType):
            holder[key] = _on_copies(value, memo)


def _on_copies(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """Return the function with the copies in place of what it refers to; the function itself if nothing was copied."""
    if id(function) in memo:
        known: FunctionType = memo[id(function)]
        return known
    closure = function.__closure__ or ()
    cells = tuple(CellType() for _ in closure)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, closure=cells or None)
    memo[id(function)] = made  # it may refer to itself
    differs = False
    for cell, own in zip(cells, closure, strict=True):
        with suppress(ValueError):  # a variable without a value
            cell.cell_contents = _copy_of(own.cell_contents, memo)
            differs |= cell.cell_contents is not own.cell_contents and cell.cell_contents is not made
    given = function.__defaults__, function.__kwdefaults__
    made.__defaults__, made.__kwdefaults__ = (_copy_of(one, memo) for one in given)
    if not differs and made.__defaults__ is given[0] and made.__kwdefaults__ is given[1]:
        memo[id(function)] = function
        return function
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    vars(made).update({name: _copy_of(value, memo) for name, value in vars(function).items()})
    return made


def _copy_of(held: Any, memo: dict[int, Any]) -> Any:
    """Return the copy of what a function refers to, if it, or a part of it, was copied; else the same object."""
    if id(held) in memo:
        return memo[id(held)]
    if isinstance(held, FunctionType):
        return _on_copies(held, memo)
    if isinstance(held, MethodType) and id(held.__self__) in memo:
        return MethodType(held.__func__, memo[id(held.__self__)])
    if isinstance(held, _CONTAINERS) and any(id(one) in memo for one in _parts(held)):
        return copy.deepcopy(held, memo)
    return held


def _parts(held: Any) -> Iterable[Any]:
    return held.values() if isinstance(held, dict) else held
