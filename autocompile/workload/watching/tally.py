"""Record a module's calls: how many of each kind, their time, and samples of each kind."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.samples import Sample

# Calls kept of each kind, and the maximum number of kinds; a loop may bring new kinds without end.
_KEPT, _MOST_KINDS = 4, 64
# The maximum memory of all samples together. The first sample may exceed it.
_MOST_BYTES = 1024**3
# This many samples represent all calls, each kind by its share.
_SAMPLES = 32


@dataclass
class Tally:
    """The calls of one module or function in one use: with gradients, or without.

    `seconds` is the time of all calls together; on a GPU, it includes waiting for the results. `trains` tells whether
    the module was in training mode at the last call. `is_compiled` tells whether the script had compiled it. `autocast`
    is the dtype of the autocast around it, or "".
    """

    module: Any
    calls: int = 0
    seconds: float = 0.0
    trains: bool = False
    is_compiled: bool = False
    autocast: str = ""
    kinds: Counter[Hashable] = field(default_factory=Counter)
    kept: dict[Hashable, list[Sample]] = field(default_factory=dict)
    held_bytes: int = 0

    def keep(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count a call before it is made. Keep its arguments if they contain a tensor and few of its kind are kept."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        self.calls += 1
        size = sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))
        if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
            return
        key = (*(_kind(leaf) for leaf in leaves), spec)
        self.kinds[key] += 1
        is_new = key not in self.kept and len(self.kept) < _MOST_KINDS
        is_room = not self.held_bytes or self.held_bytes + size <= _MOST_BYTES
        if is_room and (is_new or 0 < len(self.kept.get(key, ())) < _KEPT):
            self.held_bytes += size
            own = [own_copy(leaf) for leaf in leaves]
            self.kept.setdefault(key, []).append(Sample(*pytree.tree_unflatten(own, spec)))

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Kept calls, each kind at least once and otherwise in proportion to its share."""
        counted = sum(self.kinds[key] for key in self.kept)
        chosen: list[Sample] = []
        for key, kept in self.kept.items():
            count = max(1, round(_SAMPLES * self.kinds[key] / counted))
            count = min(count, len(kept)) if len(self.kept) == 1 else count
            chosen += [kept[position % len(kept)] for position in range(count)]
        return tuple(chosen)


def _kind(leaf: Any) -> Hashable:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.shape, leaf.device
    has_address = getattr(type(leaf), "__repr__", None) is object.__repr__
    return str(type(leaf)) if has_address else repr(leaf)


def own_copy(leaf: Any) -> Any:
    """Copy an argument, because a call may change it. Of a tensor, copy only the part of its memory that it covers."""
    if isinstance(leaf, torch.Tensor):
        if leaf.layout != torch.strided or type(leaf) is not torch.Tensor or not leaf.numel():
            return leaf.detach().clone()
        extent = 1 + sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
        covered = leaf.detach().as_strided((extent,), (1,), leaf.storage_offset()).clone()
        return covered.as_strided(leaf.shape, leaf.stride())
    try:
        return copy.deepcopy(leaf)
    except Exception:  # an object of the user may raise anything; it is then kept uncopied
        return leaf
