"""A model that runs as its plan says, and what every runtime does alike: copies, memory format, precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.core.plan import Plan
from autocompile.workload.call import Call
from autocompile.workload.tf32 import products_as


class Built(Call):
    """A model that runs as its plan says: called like the model, without gradients.

    Where `target`, the model or a copy of it, is a module, it is the one that runs beneath.
    """

    def __init__(self, call: Callable[..., Any], plan: Plan, device_type: str, target: Any) -> None:
        module = target if isinstance(target, nn.Module) else None
        super().__init__(call, module=module, threads=plan.threads, device_type=device_type)
        self._autocast = getattr(torch, plan.autocast) if plan.autocast else None
        self._products = products_as(plan.float32)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), self._products:
            if self._autocast is None:
                return self.model(*args, **kwargs)
            # Outside the compiled region: inside it, no compiler cache can be used.
            with torch.autocast(self.device_type, dtype=self._autocast):
                output = self.model(*args, **kwargs)
            return pytree.tree_map(self._restored, output)

    def _restored(self, leaf: Any) -> Any:
        reduced = isinstance(leaf, torch.Tensor) and leaf.dtype == self._autocast
        return leaf.float() if reduced else leaf


def transformed(model: Any, plan: Plan, *, isolate: bool = False, in_place: bool = False) -> Any:
    """The model with all of the plan done to it that every runtime does alike: itself, or a copy.

    The copy shares the parameters, so it costs no memory and follows later changes of the weights; only another memory
    format makes weights of its own. With `isolate` it has buffers of its own. With `in_place` there is a copy in any
    case, which may be changed.
    """
    if not isinstance(model, nn.Module) or not (isolate or in_place or plan.memory_format):
        return model
    target = _sharing_copy(model, own_buffers=isolate, own_images=bool(plan.memory_format))
    if plan.memory_format:
        target.to(memory_format=getattr(torch, plan.memory_format))  # type: ignore[call-overload]
    return target


def _sharing_copy(model: nn.Module, *, own_buffers: bool, own_images: bool) -> nn.Module:
    """A copy of a module's structure that shares its tensors, but for buffers or 4-D ones if they are to be own."""
    shared = [*model.parameters(), *([] if own_buffers else model.buffers())]
    memo = {id(tensor): tensor for tensor in shared if not (own_images and tensor.dim() == 4)}
    return copy.deepcopy(model, memo)
