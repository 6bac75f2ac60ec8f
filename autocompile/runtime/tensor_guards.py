"""Torch's own check of many tensors at once, in C++. It confirms quickly what a loop in Python would check slowly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

# True only if the given tensors are certainly like those that it was made from. False proves nothing.
Confirmation = Callable[..., bool]


def confirmation_of(tensors: Sequence[torch.Tensor]) -> Confirmation:
    """Confirm tensors of the same types, dtypes, devices, layouts, sizes and strides, in the mode in which it is made.

    The check covers more than these, such as the dispatch keys. Tensors that it does not confirm may therefore still be
    alike.
    """
    guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)  # noqa: SLF001
    if not tensors or not hasattr(guards, "TensorGuards"):
        return lambda *_tensors: False
    sizes, strides = ([list(ask(tensor)) for tensor in tensors] for ask in (torch.Tensor.size, torch.Tensor.stride))
    check: Confirmation = guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check
