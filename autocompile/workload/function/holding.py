"""Separate a function's arguments into data and held objects: modules and other objects that stay the same."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.identity.plain import text_of


@dataclass(frozen=True)
class Held:
    """The arguments of a call that contain no tensor and are not plain values: `first` by position, `named` by name."""

    first: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same objects."""
        return (*map(id, self.first), *((name, id(value)) for name, value in self.named))

    @property
    def objects(self) -> tuple[Any, ...]:
        """All held objects."""
        return (*self.first, *(value for _name, value in self.named))

    def given(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with these arguments already given."""
        return functools.partial(function, *self.first, **dict(self.named)) if self.objects else function


def divided(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Held, tuple[Any, ...], dict[str, Any]]:
    """Return the held arguments of a call, and its other arguments.

    If a held argument follows data, it and the arguments after it are passed by name, if the function names them.
    """
    held = [is_held(one) for one in args]
    if not any(held) and not any(map(is_held, kwargs.values())):
        return Held(), args, kwargs
    count = next((n for n, one in enumerate(held) if not one), len(args))
    first, rest = args[:count], args[count:]
    if any(held[count:]):
        code = inspect.unwrap(function).__code__
        names = code.co_varnames[: code.co_argcount]
        split = held.index(True, count)
        if code.co_posonlyargcount <= split and len(args) <= len(names):
            kwargs = {**dict(zip(names[split:], args[split:], strict=False)), **kwargs}
            rest = args[count:split]
    named = {name: value for name, value in kwargs.items() if is_held(value)}
    others = {name: value for name, value in kwargs.items() if name not in named}
    return Held(first, tuple(named.items())), rest, others


def is_held(argument: Any) -> bool:
    """Return whether an argument is an object, possibly with modules, and neither data nor a plain value."""
    if isinstance(argument, torch.Tensor | int | float | str | torch.device | torch.dtype | None):
        return False
    leaves = pytree.tree_leaves(argument)
    if any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return False
    return any(isinstance(leaf, torch.nn.Module) or text_of(leaf) is None for leaf in leaves)
