"""Pad calls to one of a few sizes, so that the compiler has to compile for few shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.buckets import Buckets, PaddedAxis


class Padder:
    """Pads a call's arguments to the next bucket and cuts its outputs back."""

    def __init__(self, call: Callable[..., Any], buckets: Buckets) -> None:
        self._call, self._buckets = call, buckets

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the call. A call of another form than the proven one is not padded."""
        leaves = self._leaves(args, kwargs)
        size = _common_size(leaves, self._buckets.padded) if leaves else 0
        bucket = self._buckets.size_for(size) if size else 0
        if bucket == size:
            return self._call(*args, **kwargs)
        longer = filled(leaves, self._buckets.padded, bucket - size)
        named = dict(zip(self._buckets.keywords, longer[self._buckets.positional :], strict=True))
        outputs, spec = pytree.tree_flatten(self._call(*longer[: self._buckets.positional], **named))
        if len(outputs) != self._buckets.outputs:
            return self._call(*args, **kwargs)
        for cut in self._buckets.cut:
            outputs[cut.leaf] = outputs[cut.leaf].narrow(cut.axis, 0, size).contiguous()
        return pytree.tree_unflatten(outputs, spec)

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the arguments in the proven order, or an empty list if the call has another form."""
        if len(args) != self._buckets.positional or kwargs.keys() != set(self._buckets.keywords):
            return []
        leaves = [*args, *(kwargs[name] for name in self._buckets.keywords)]
        return leaves if tuple(map(kind_of, leaves)) == self._buckets.kinds else []


def kind_of(leaf: Any) -> str:
    """Return a tensor's dtype and number of axes, or the `repr` of a constant."""
    return f"{leaf.dtype} {leaf.dim()}" if isinstance(leaf, torch.Tensor) else repr(leaf)


def filled(leaves: Sequence[Any], padded: Sequence[PaddedAxis], more: int) -> list[Any]:
    """Return the leaves with `more` additional places along each padded axis, filled with the axis's value."""
    found = list(leaves)
    for one in padded:
        behind = [0, 0] * (found[one.leaf].dim() - 1 - one.axis)
        found[one.leaf] = torch.nn.functional.pad(found[one.leaf], [*behind, 0, more], value=one.fill)
    return found


def _common_size(leaves: Sequence[Any], padded: Sequence[PaddedAxis]) -> int:
    """Return the size that all axes to be padded have in common, or 0 if they differ."""
    sizes = {int(leaves[one.leaf].shape[one.axis]) for one in padded}
    return sizes.pop() if len(sizes) == 1 else 0
