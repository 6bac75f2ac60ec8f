"""Methods of the model that a loaded module replaces, because the model's own would be wrong.

A program is compiled for one device, one precision and for inference, so the module cannot be moved, converted or
trained. Methods that return the model return the module instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn

from autocompile.core.errors import UsageError

# Methods of `nn.Module` that convert its tensors.
_CONVERTING = frozenset(
    {"bfloat16", "cpu", "cuda", "double", "float", "half", "ipu", "mtia", "to", "to_empty", "type", "xpu"}
)
_RETURNING_ITSELF = frozenset({"apply", "eval", "requires_grad_", "share_memory"})


def answer(module: Any, model: nn.Module, name: str) -> Callable[..., Any] | None:
    """Return the method `name` of `module`, which replaces `model`; None if the model's own method is right."""
    if name in _CONVERTING:
        return _named(model, name, lambda *args, **kwargs: _stay(module, model, name, args, kwargs))
    if name == "train":
        return _named(model, name, lambda mode=True: _train(module, model, mode=mode))
    if name in _RETURNING_ITSELF:
        return _named(model, name, lambda *args, **kwargs: (getattr(model, name)(*args, **kwargs), module)[1])
    return None


def _named(model: nn.Module, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with the name, documentation and signature of the model's."""
    return wraps(getattr(model, name))(method)


def _stay(module: Any, model: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the module if converting the model would change nothing. Raises UsageError otherwise."""
    layout = kwargs.get("memory_format")
    for tensor in (*model.parameters(), *model.buffers()):
        twin = nn.Module()
        twin.register_buffer("tensor", torch.empty(0, dtype=tensor.dtype, device=tensor.device))
        getattr(twin, name)(*args, **kwargs)
        converted = twin.get_buffer("tensor")
        is_the_same = (converted.device, converted.dtype) == (tensor.device, tensor.dtype)
        if layout is not None and tensor.dim() in (4, 5):
            is_the_same = is_the_same and tensor.is_contiguous(memory_format=layout)
        if not is_the_same or name == "to_empty":
            raise UsageError(
                f"a loaded module cannot be converted; it serves {tensor.dtype} on {tensor.device}",
                where=name,
                remedy="convert the model, and load it again",
            )
    return module


def _train(module: Any, model: nn.Module, *, mode: bool) -> Any:
    if mode and not model.training:
        raise UsageError(
            "a loaded module serves inference only, without gradients",
            where="train",
            remedy="train the model itself, then call its eval(); the module serves the changed weights",
        )
    model.train(mode)
    return module
