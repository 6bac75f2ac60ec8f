"""What a loaded module answers in its model's place, where the model's own answer would not be right.

A program was compiled for the model in one place, in one precision and for inference, so the module cannot follow
where a model would go; and what returns the model returns the module.
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
    """The method `name` of `module`, which stands for `model`; None if the model's own is right."""
    if name in _CONVERTING:
        return _named(model, name, lambda *args, **kwargs: _stay(module, model, name, args, kwargs))
    if name == "train":
        return _named(model, name, lambda mode=True: _train(module, model, mode=mode))
    if name in _RETURNING_ITSELF:
        return _named(model, name, lambda *args, **kwargs: (getattr(model, name)(*args, **kwargs), module)[1])
    return None


def _named(model: nn.Module, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """With the name, the documentation and the signature of the model's."""
    return wraps(getattr(model, name))(method)


def _stay(module: Any, model: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The module, if converting the model would change nothing. Raises UsageError otherwise."""
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
                f"what was loaded serves the model in {tensor.dtype} on {tensor.device}, and cannot be converted",
                where=name,
                remedy="convert the model, and load again",
            )
    return module


def _train(module: Any, model: nn.Module, *, mode: bool) -> Any:
    if mode and not model.training:
        raise UsageError(
            "what was loaded serves inference, without gradients",
            where="train",
            remedy="train the model itself, call its eval() after that, and changed weights are served",
        )
    model.train(mode)
    return module
