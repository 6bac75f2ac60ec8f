"""Objects among arguments and results that pytree does not know, such as a cache of keys and values.

They may hold tensors, and a call may write into them.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

_PLAIN = (str, bytes, int, float, complex, bool, torch.dtype, torch.device)
# Objects that are not searched for tensors, and never copied.
_CLOSED = (type, nn.Module, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_DEEPEST = 6


def parts(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and the plain data in an object, each with its path. Other objects are named by their type."""
    if value is None or isinstance(value, (torch.Tensor, *_PLAIN)):
        yield name, value
    elif isinstance(value, list | tuple) and depth < _DEEPEST:
        for position, item in enumerate(value):
            yield from parts(f"{name}[{position}]", item, depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        for key, item in value.items():
            yield from parts(f"{name}[{key!r}]", item, depth + 1)
    elif _is_open(value) and depth < _DEEPEST:
        yield f"{name} (type)", type(value).__qualname__
        for key, item in vars(value).items():
            yield from parts(f"{name}.{key}", item, depth + 1)
    else:
        yield f"{name} (type)", type(value).__qualname__


def opened(name: str, leaf: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a leaf that has attributes or elements, or else the leaf itself."""
    yield from parts(name, leaf) if _is_open(leaf) else [(name, leaf)]


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers, and those in objects that pytree does not know."""
    for leaf in pytree.tree_leaves(tree):
        yield from (value for _name, value in opened("", leaf) if isinstance(value, torch.Tensor))


def is_batch(value: Any) -> bool:
    """Return whether it is an object that holds tensors and can be moved to a device, like a batch of graphs."""
    return _is_open(value) and callable(getattr(value, "to", None)) and any(True for _tensor in tensors_in(value))


def mapped(change: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return nested containers with `change` applied to each tensor.

    Objects that pytree does not know are copied, with the tensors in them, since a call may write into them, also into
    a cache that is still empty. Modules, functions and objects without attributes are passed on.
    """
    memo: dict[int, Any] = {}

    def changed(leaf: Any) -> Any:
        return change(leaf) if isinstance(leaf, torch.Tensor) else _copied(leaf, change, memo)

    return pytree.tree_map(changed, tree)


def _copied(leaf: Any, change: Callable[[torch.Tensor], Any], memo: dict[int, Any]) -> Any:
    if not _is_open(leaf):
        return leaf
    for held in _held_in(leaf, set()):
        if id(held) not in memo:
            memo[id(held)] = change(held) if isinstance(held, torch.Tensor) else held
    try:
        return copy.deepcopy(leaf, memo)
    except Exception:  # whatever the object's own methods raise: it is passed on as it is
        return leaf


def _is_open(value: Any) -> bool:
    """Return whether an object has attributes or elements that are searched for tensors."""
    if isinstance(value, (torch.Tensor, *_PLAIN, *_CLOSED)):
        return False
    return isinstance(value, list | tuple | dict) or bool(getattr(value, "__dict__", None))


def _held_in(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the tensors and the modules in an object, each once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor | nn.Module):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _held_in(item, seen)
    elif _is_open(value):
        for item in vars(value).values():
            yield from _held_in(item, seen)
