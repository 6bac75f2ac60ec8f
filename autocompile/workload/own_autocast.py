"""A model whose forward() a script has wrapped in autocast, as accelerate does for mixed precision.

The wrapper is stored in the module itself, where it hides the forward() of the class. This file recognizes such
wrappers, so that autocompile can report them, and remove them while the model computes in another precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

_FORWARD = "forward"
# Where accelerate keeps the forward() that it has hidden.
_HIDDEN = "_original_forward"
# Functions of this module convert a model's outputs to single precision.
_CONVERTS = "accelerate.utils.operations"


def own_autocast(module: nn.Module) -> str:
    """Return the dtype of the autocast around forward(), or "".

    It is "" too if an unknown wrapper is around forward().
    """
    layers = _layers(module)
    casts = [one for one in map(_autocast_of, layers or ()) if one is not None]
    if layers is None or not casts or not casts[-1]._enabled:  # noqa: SLF001  torch has no public way
        return ""
    return str(casts[-1].fast_dtype).removeprefix("torch.")


def is_wrapped_otherwise(module: nn.Module) -> bool:
    """Return whether an unknown wrapper is around its forward()."""
    return hasattr(vars(module).get(_FORWARD), "__wrapped__") and _layers(module) is None


def is_wrapped(module: nn.Module) -> bool:
    """Return whether anything is around its forward()."""
    return _FORWARD in vars(module)


def unwrap(module: nn.Module) -> None:
    """Remove the autocast around its forward(), if there is no other wrapper."""
    if _layers(module):
        vars(module).pop(_FORWARD)
        vars(module).pop(_HIDDEN, None)


def unwrapped(module: nn.Module) -> AbstractContextManager[None]:
    """Remove that autocast within the context."""
    return _unwrapped(module) if is_wrapped(module) else nullcontext()


@contextmanager
def _unwrapped(module: nn.Module) -> Iterator[None]:
    held = vars(module)
    before = {name: held[name] for name in (_FORWARD, _HIDDEN) if name in held}
    unwrap(module)
    try:
        yield
    finally:
        held.update(before)


def _layers(module: nn.Module) -> list[Any] | None:
    """Return the wrappers around the forward() of its class, the outermost first, or None if one is unknown."""
    found: list[Any] = []
    one = vars(module).get(_FORWARD)
    while one is not None:
        plain = getattr(one, "__func__", one)
        if plain is type(module).forward:
            return found
        if _autocast_of(plain) is None and not _converts(plain):
            return None
        found.append(plain)
        one = getattr(plain, "__wrapped__", None)
    return None if found else []


def _autocast_of(function: Any) -> torch.autocast | None:
    """Return the autocast that a function applies, if autocast made this function as a decorator."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    held = (cell.cell_contents for cell in cells if code is not None and code.co_name == "decorate_autocast")
    return next((one for one in held if isinstance(one, torch.autocast)), None)


def _converts(function: Callable[..., Any]) -> bool:
    return _CONVERTS in (getattr(function, "__module__", ""), type(function).__module__)
