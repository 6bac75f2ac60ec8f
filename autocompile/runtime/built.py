"""A model that runs as its plan says. All runtimes share the code here for copies, memory format and precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.core.plan import Plan
from autocompile.workload.attention import attention_as
from autocompile.workload.call import Call
from autocompile.workload.copying import copied
from autocompile.workload.tf32 import products_as

_NOTHING = nullcontext()


class Built(Call):
    """A model that runs as its plan says: it is called like the model, without gradients.

    If `target`, which is the model or a copy of it, is a module, then it is the module that runs.
    """

    def __init__(self, call: Callable[..., Any], plan: Plan, device_type: str, target: Any) -> None:
        module = target if isinstance(target, nn.Module) else None
        super().__init__(call, module=module, threads=plan.threads, device_type=device_type)
        self._autocast = getattr(torch, plan.autocast) if plan.autocast else None
        self._products = products_as(plan.float32)
        self._attention = attention_as(plan.attention)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # To enter `no_grad` costs microseconds, which callers that did so already need not pay again.
        with torch.no_grad() if torch.is_grad_enabled() else _NOTHING, self._products, self._attention:
            if self._autocast is None:
                return self.model(*args, **kwargs)
            # Autocast is entered outside of the compiled region: inside it, the compiler could not use its cache.
            with torch.autocast(self.device_type, dtype=self._autocast):
                output = self.model(*args, **kwargs)
            return pytree.tree_map(self._restored, output)

    def _restored(self, leaf: Any) -> Any:
        reduced = isinstance(leaf, torch.Tensor) and leaf.dtype == self._autocast
        return leaf.float() if reduced else leaf


def transformed(model: Any, plan: Plan, *, isolate: bool = False, in_place: bool = False) -> Any:
    """Return the model, or a copy of it, with the changes of the plan that are the same for every runtime.

    The copy shares the parameters. It therefore costs no memory and follows later changes of the weights. Only another
    memory format makes copies of the weights. With `isolate`, the result has its own buffers. With `in_place`, the
    result is always a copy, which the caller may change.
    """
    if not isinstance(model, nn.Module) or not (isolate or in_place or plan.memory_format):
        return model
    target = _sharing_copy(model, own_buffers=isolate, own_images=bool(plan.memory_format))
    if plan.memory_format:
        target.to(memory_format=getattr(torch, plan.memory_format))  # type: ignore[call-overload]
    return target


def _sharing_copy(model: nn.Module, *, own_buffers: bool, own_images: bool) -> nn.Module:
    """Copy a module's structure but share its tensors, except buffers or 4-D tensors if these are to be copied."""
    shared = [*model.parameters(), *([] if own_buffers else model.buffers())]
    memo = {id(tensor): tensor for tensor in shared if not (own_images and tensor.dim() == 4)}
    return copied(model, memo)
