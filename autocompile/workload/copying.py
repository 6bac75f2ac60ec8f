"""Copy a model, together with the functions that its modules hold."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

from torch import nn

T = TypeVar("T")
_CONTAINERS = (list, tuple, set, frozenset, dict)


def copied(model: T, memo: dict[int, Any] | None = None) -> T:
    """Return a deep copy of a model, or of a structure that holds models; `memo` is that of `copy.deepcopy`.

    `copy.deepcopy` shares functions. If a module holds a function that refers to a module of the model, such as
    `self.mlpf = lambda x: m.c_proj(m.act(m.c_fc(x)))`, then the copy would still compute with the original's weights.
    Here the copy's function refers to the copies.
    """
    memo = {} if memo is None else memo
    made = copy.deepcopy(model, memo)
    modules = {id(one): one for one in memo.values() if isinstance(one, nn.Module)}
    for module in modules.values():
        held = vars(module)
        for name, value in held.items():
            if isinstance(value, FunctionType):
                held[name] = _on_copies(value, memo)
    return made


def _on_copies(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """Return the function with the copies in place of what it refers to; the function itself if nothing was copied."""
    cells = function.__closure__ or ()
    memo[id(function)] = function  # it may refer to itself
    replaced = tuple(_replaced(cell, memo) for cell in cells)
    if all(one is cell for one, cell in zip(replaced, cells, strict=True)):
        return function
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure=replaced
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    vars(made).update(vars(function))
    memo[id(function)] = made
    return made


def _replaced(cell: CellType, memo: dict[int, Any]) -> CellType:
    try:
        held = cell.cell_contents
    except ValueError:  # the variable has no value yet
        return cell
    made = _copy_of(held, memo)
    return cell if made is held else CellType(made)


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
    return held.values() if isinstance(held, Mapping) else held
