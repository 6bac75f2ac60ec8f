"""What was seen of a module's calls: how many of which kind, for how long, and samples of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.workload.samples import Sample, clone

# Of a kind of call so many are kept, and of so many kinds; a loop may bring new ones without end.
_KEPT, _MOST_KINDS = 4, 64
# So many samples stand for all calls, each kind by its share.
_SAMPLES = 32


@dataclass
class Tally:
    """The calls of one module, as far as they are of one use: with gradients, or without.

    `seconds` that they took, all together; on a GPU, until they were started. `trains`: whether the module was in
    training mode at the last one; `is_compiled`: whether the script had compiled it; `autocast`: the dtype of the
    autocast around it, "" for none.
    """

    module: nn.Module
    calls: int = 0
    seconds: float = 0.0
    trains: bool = False
    is_compiled: bool = False
    autocast: str = ""
    kinds: Counter[Hashable] = field(default_factory=Counter)
    kept: dict[Hashable, list[Sample]] = field(default_factory=dict)

    def keep(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count a call before it is made, and keep its arguments if there are few of its kind."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (*(_kind(leaf) for leaf in leaves), spec)
        self.calls += 1
        self.kinds[key] += 1
        kept = self.kept.get(key)
        if kept is None and len(self.kept) < _MOST_KINDS:
            kept = self.kept[key] = []
        if kept is not None and len(kept) < _KEPT:
            kept.append(clone(Sample(args, dict(kwargs))))

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Kept calls, each kind at least once and else as often as its share says."""
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
    return repr(leaf)
