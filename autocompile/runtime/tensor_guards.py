"""Torch's own check of many tensors at once, in C++: a quick yes, where going over them in Python is not quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

# True only if the tensors given are certainly like those that it was made from; False says nothing.
Confirmation = Callable[..., bool]


def confirmation_of(tensors: Sequence[torch.Tensor]) -> Confirmation:
    """Confirms tensors of the same types, dtypes, devices, layouts, sizes and strides, in the mode it is made in.

    It looks at more than that, such as the dispatch keys, so what it does not confirm may be alike all the same.
    """
    guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)  # noqa: SLF001
    if not tensors or not hasattr(guards, "TensorGuards"):
        return lambda *_tensors: False
    sizes, strides = ([list(ask(tensor)) for tensor in tensors] for ask in (torch.Tensor.size, torch.Tensor.stride))
    check: Confirmation = guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check
