"""Split a batch along its first axis into equal parts, whose mean losses average to that of the whole."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.training.training import known


def parts_of(batch: Any, count: int) -> list[Any]:
    """Split a batch into `count` equal parts, without a copy, or return it whole if that is not possible: see `uncut`.

    Each tensor that has an axis is split along its first one. Everything else in the batch is part of each piece.
    """
    if count == 1 or uncut(batch, count):
        return [batch]
    leaves, spec = pytree.tree_flatten(known(batch))
    cut = [leaf.chunk(count) if _has_axis(leaf) else [leaf] * count for leaf in leaves]
    return [pytree.tree_unflatten(list(part), spec) for part in zip(*cut, strict=True)]


def uncut(batch: Any, count: int) -> str:
    """Return why a batch cannot be split into this many equal parts, or ""."""
    sizes = {leaf.shape[0] for leaf in pytree.tree_leaves(known(batch)) if _has_axis(leaf)}
    if not sizes:
        return "no tensor of a batch has an axis"
    if len(sizes) > 1:
        return f"the first axes of a batch differ in size: {', '.join(map(str, sorted(sizes)))}"
    size = sizes.pop()
    return "" if size and size % count == 0 else f"a batch of {size} has no {count} equal parts"


def _has_axis(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0
