"""Double precision for tensors of a loss that belong to no model: class weights, masks, tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class Widening(TorchFunctionMode):
    """If a function gets tensors in double precision and others of lower precision, converts the latter to double.

    Functions that write into a tensor get their arguments unchanged.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function."""
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves((args, kwargs))
        mixed = len({leaf.dtype for leaf in leaves if _is_float(leaf)}) > 1
        if mixed and any(_is_float(leaf) and leaf.dtype == torch.float64 for leaf in leaves) and not _writes(func):
            args, kwargs = pytree.tree_map(_wide, (args, kwargs))
        return func(*args, **kwargs)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _wide(leaf: Any) -> Any:
    return leaf.double() if _is_float(leaf) else leaf


def _writes(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    special = name.endswith("__")
    return name.startswith(("__i", "__set")) if special else name.endswith("_")
