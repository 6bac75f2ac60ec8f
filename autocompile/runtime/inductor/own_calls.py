"""Compile a module's calls in place.

`nn.Module.compile()` compiles nothing of a module of torch itself, such as `nn.TransformerEncoderLayer` or
`nn.Sequential`, because the compiler skips code in torch's files unless other code calls it. A function in this file
does (`call_of`).

`torch.compile(model)` returns an object whose methods are the model's own. If a loss calls
`model.training_step(batch)`, as with Lightning, and that method calls `self(...)`, then nothing is compiled. Here the
model's own calls are compiled while its loss is computed, and only then, so that other calls of the model stay eager.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from autocompile.workload.training.training import Loss

# Where `nn.Module.__call__` looks for a compiled call, as `nn.Module.compile` sets it (torch 2.11 to 2.13).
_PLACE = "_compiled_call_impl"
# A code object for each class, because the compiler limits the number of programs for one.
_CODES: dict[type, types.CodeType] = {}


def call_of(module: nn.Module) -> Callable[..., Any]:
    """Return the function to compile for calls of a module. Equal modules share one compiled program."""
    call: Callable[..., Any] = module._call_impl  # noqa: SLF001
    if not type(module).__module__.startswith("torch."):
        return call

    def inlined(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    inlined.__code__ = _CODES.setdefault(type(module), inlined.__code__.replace())
    return inlined


def put_in_place(module: nn.Module, call: Callable[..., Any]) -> None:
    """Let calls of the module be `call`, which is compiled from `call_of(module)`."""
    setattr(module, _PLACE, call)


class OwnCalls:
    """A loss in which calls of `module` are `call`, which is compiled from `call_of(module)`."""

    def __init__(self, module: nn.Module, loss: Loss, call: Callable[..., Any]) -> None:
        self._module, self._loss, self._call = module, loss, call

    def __call__(self, _model: Any, batch: Any) -> torch.Tensor:
        held = vars(self._module)
        before = held.get(_PLACE)
        before = None if before is self._call else before
        held[_PLACE] = self._call
        try:
            return self._loss(self._module, batch)
        finally:
            if before is None:
                held.pop(_PLACE, None)
            else:
                held[_PLACE] = before
