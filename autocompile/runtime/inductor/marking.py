"""Mark axes that vary before the compiler compiles for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.plan import AxisRange


class Marked:
    """A call that first marks the varying axes of its arguments, once for each new combination of sizes."""

    def __init__(self, call: Callable[..., Any], ranges: tuple[AxisRange, ...]) -> None:
        import torch._dynamo as dynamo  # noqa: PLC0415  production must not import it

        self._call, self._ranges, self._dynamo = call, ranges, dynamo
        self._seen: set[tuple[int, ...]] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._mark(args, kwargs)
        return self._call(*args, **kwargs)

    def _mark(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Mark the axes if these sizes are new. The compiler always uses another program for a size of one."""
        leaves = pytree.tree_leaves((args, kwargs))
        if len(leaves) <= max(one.leaf for one in self._ranges):
            return
        places = [(one, leaves[one.leaf]) for one in self._ranges]
        if not all(isinstance(leaf, torch.Tensor) and leaf.dim() > one.axis for one, leaf in places):
            return
        sizes = tuple(leaf.shape[one.axis] for one, leaf in places)
        if sizes in self._seen:
            return
        self._seen.add(sizes)
        for (one, leaf), size in zip(places, sizes, strict=True):
            if max(one.low, 2) <= size <= one.high:
                self._dynamo.mark_dynamic(leaf, one.axis, min=one.low, max=one.high)
