"""Objects among arguments and results that pytree does not know, such as a cache of keys and values.

They may hold tensors, and a call may write into them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

_PLAIN = (str, bytes, int, float, complex, bool, torch.dtype, torch.device)
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
    elif hasattr(value, "__dict__") and not isinstance(value, type | nn.Module) and depth < _DEEPEST:
        yield f"{name} (type)", type(value).__qualname__
        for key, item in vars(value).items():
            yield from parts(f"{name}.{key}", item, depth + 1)
    else:
        yield f"{name} (type)", type(value).__qualname__


def opened(name: str, leaf: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a leaf that holds tensors, or else the leaf itself."""
    yield from parts(name, leaf) if _tensors_in(leaf) else [(name, leaf)]


def mapped(change: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return nested containers with `change` applied to each tensor.

    Objects that pytree does not know are copied if they hold tensors, and keep what else they share.
    """
    memo: dict[int, Any] = {}

    def changed(leaf: Any) -> Any:
        return change(leaf) if isinstance(leaf, torch.Tensor) else _copied(leaf, change, memo)

    return pytree.tree_map(changed, tree)


def _copied(leaf: Any, change: Callable[[torch.Tensor], Any], memo: dict[int, Any]) -> Any:
    held = _tensors_in(leaf)
    if not held:
        return leaf
    for tensor in held:
        if id(tensor) not in memo:
            memo[id(tensor)] = change(tensor)
    try:
        return copy.deepcopy(leaf, memo)
    except Exception:  # whatever the object's own methods raise: it is passed on as it is
        return leaf


def _tensors_in(leaf: Any) -> list[torch.Tensor]:
    """Return the tensors in an object other than a tensor or a module."""
    if leaf is None or isinstance(leaf, (torch.Tensor, nn.Module, *_PLAIN)):
        return []
    return [part for _name, part in parts("", leaf) if isinstance(part, torch.Tensor)]
