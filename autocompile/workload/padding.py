"""Calls filled up to a few sizes, so that few shapes are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.buckets import Buckets, PaddedAxis


class Padder:
    """Fills a call's arguments up to the next bucket, and cuts its outputs back."""

    def __init__(self, call: Callable[..., Any], buckets: Buckets) -> None:
        self._call, self._buckets = call, buckets

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the call gives for these arguments; without the axes to fill, it is made as it is."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        size = self._size_of(leaves)
        bucket = self._buckets.size_for(size)
        if bucket == size:
            return self._call(*args, **kwargs)
        args, kwargs = pytree.tree_unflatten(filled(leaves, self._buckets.padded, bucket - size), spec)
        outputs, output_spec = pytree.tree_flatten(self._call(*args, **kwargs))
        for cut in self._buckets.cut:
            outputs[cut.leaf] = outputs[cut.leaf].narrow(cut.axis, 0, size).contiguous()
        return pytree.tree_unflatten(outputs, output_spec)

    def _size_of(self, leaves: Sequence[Any]) -> int:
        """The size that all axes to be filled have, or the largest, for which nothing is filled, if they have none."""
        sizes = {_size_along(leaves, one) for one in self._buckets.padded}
        largest = self._buckets.sizes[-1]
        return (sizes.pop() or largest) if len(sizes) == 1 else largest


def filled(leaves: Sequence[Any], padded: Sequence[PaddedAxis], more: int) -> list[Any]:
    """The leaves with so many more places, which hold each axis's value."""
    found = list(leaves)
    for one in padded:
        behind = [0, 0] * (found[one.leaf].dim() - 1 - one.axis)
        found[one.leaf] = torch.nn.functional.pad(found[one.leaf], [*behind, 0, more], value=one.fill)
    return found


def _size_along(leaves: Sequence[Any], one: PaddedAxis) -> int:
    """0 if there is no such axis."""
    leaf = leaves[one.leaf] if one.leaf < len(leaves) else None
    return int(leaf.shape[one.axis]) if isinstance(leaf, torch.Tensor) and leaf.dim() > one.axis else 0
