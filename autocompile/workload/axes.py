"""Find which axes of the arguments differ between calls, and make samples of other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.sizes import reach
from autocompile.workload.samples import Sample

Place = tuple[int, int]


@dataclass(frozen=True)
class FreeAxis:
    """Axes (leaf, axis) that always have the same size, the sizes seen, and the range of sizes to compile for."""

    name: str
    places: frozenset[Place]
    seen: tuple[int, ...]
    low: int
    high: int

    def narrowed(self) -> FreeAxis:
        """Return the same axis with the range of sizes that was seen."""
        return FreeAxis(self.name, self.places, self.seen, min(self.seen), max(self.seen))


def free_axes(samples: Sequence[Sample], batch: frozenset[Place]) -> tuple[FreeAxis, ...]:
    """Return the axes along which samples of one form differ, and the `batch` axis.

    Axes that have equal sizes in every sample form one FreeAxis. The range of each goes beyond the sizes that were
    seen.
    """
    shapes = [[leaf.shape if isinstance(leaf, torch.Tensor) else () for leaf in leaves_of(s)] for s in samples]
    together: dict[tuple[int, ...], set[Place]] = {}
    for leaf, shape in enumerate(shapes[0]):
        for axis in range(len(shape)):
            sizes = tuple(seen[leaf][axis] for seen in shapes)
            if len(set(sizes)) > 1 or (leaf, axis) in batch:
                together.setdefault(sizes, set()).add((leaf, axis))
    found = []
    for position, (sizes, places) in enumerate(together.items()):
        low = 1 if places & batch or min(sizes) == 1 else min(2, *sizes)
        found.append(FreeAxis(f"n{position}", frozenset(places), sizes, low, reach(max(sizes))))
    return tuple(found)


def leaves_of(sample: Sample) -> list[Any]:
    """Return all arguments, flattened."""
    return pytree.tree_leaves((sample.args, sample.kwargs))


def resized(sample: Sample, places: frozenset[Place], size: int) -> Sample:
    """Return the same call with another size along these axes, with its values repeated or cut."""
    leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
    for leaf, axis in sorted(places):
        index = torch.arange(size, device=leaves[leaf].device) % leaves[leaf].shape[axis]
        leaves[leaf] = leaves[leaf].index_select(axis, index)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return Sample(args, kwargs)


def batch_of(sample: Sample) -> int:
    """Return the batch size of a call whose batch axis is proved."""
    leaf, axis = min(first_axes(sample))
    return int(leaves_of(sample)[leaf].shape[axis])


def first_axes(sample: Sample) -> frozenset[Place]:
    """Return the first axis of each tensor among the arguments that has at least one axis."""
    leaves = enumerate(leaves_of(sample))
    return frozenset((i, 0) for i, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0)
