"""Which axes of the arguments may differ from call to call: those that do, and those of independent samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.samples import Sample, clone

# How far beyond what was seen a size may go: as far as four times, up to the next power of two.
_BEYOND = 4
# Halves of a batch are computed in another order than the whole.
_SAME = 1e-3

Place = tuple[int, int]


@dataclass(frozen=True)
class FreeAxis:
    """Places (leaf, axis) that always have one size together, the sizes seen, and the range to compile for."""

    name: str
    places: frozenset[Place]
    seen: tuple[int, ...]
    low: int
    high: int

    def narrowed(self) -> FreeAxis:
        """With the range that was seen."""
        return FreeAxis(self.name, self.places, self.seen, min(self.seen), max(self.seen))


def free_axes(samples: Sequence[Sample], batch: frozenset[Place]) -> tuple[FreeAxis, ...]:
    """The axes along which samples of one form differ, those of equal sizes together; and the `batch` axis.

    The range of each goes beyond what was seen.
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
        high = 1 << (_BEYOND * max(sizes) - 1).bit_length()
        low = 1 if places & batch or min(sizes) == 1 else min(2, *sizes)
        found.append(FreeAxis(f"n{position}", frozenset(places), sizes, low, high))
    return tuple(found)


def leaves_of(sample: Sample) -> list[Any]:
    """All arguments, flattened."""
    return pytree.tree_leaves((sample.args, sample.kwargs))


def resized(sample: Sample, places: frozenset[Place], size: int) -> Sample:
    """The same call with another size along these axes: its values, repeated or cut."""
    leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
    for leaf, axis in sorted(places):
        index = torch.arange(size, device=leaves[leaf].device) % leaves[leaf].shape[axis]
        leaves[leaf] = leaves[leaf].index_select(axis, index)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return Sample(args, kwargs)


def batch_axis(call: Callable[..., Any], sample: Sample) -> frozenset[Place]:
    """The first axes of the arguments, if the samples along them are proved to be independent; else nothing.

    Proved: every output has that axis too, and what a part of the samples gives is that part of what all give.
    """
    leaves = leaves_of(sample)
    sizes = {leaf.shape[0] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        return frozenset()
    places = frozenset((i, 0) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0)
    try:
        whole = _outputs(call, sample)
        parts = {part: _outputs(call, resized(sample, places, part)) for part in {1, (size + 1) // 2}}
    except Exception:  # a model that takes no other size, in whatever words it says so
        return frozenset()
    independent = whole and all(
        len(found) == len(whole)
        and all(_is_part(one, all_, part, size) for one, all_ in zip(found, whole, strict=True))
        for part, found in parts.items()
    )
    return places if independent else frozenset()


def _outputs(call: Callable[..., Any], sample: Sample) -> list[torch.Tensor]:
    own = clone(sample)
    with torch.no_grad():
        return [x for x in pytree.tree_leaves(call(*own.args, **own.kwargs)) if isinstance(x, torch.Tensor)]


def _is_part(one: torch.Tensor, whole: torch.Tensor, part: int, size: int) -> bool:
    if whole.dim() == 0 or whole.shape[0] != size or one.shape != (part, *whole.shape[1:]):
        return False
    expected = whole[:part]
    if not expected.is_floating_point() and not expected.is_complex():
        return torch.equal(one, expected)
    scale = float(expected.abs().double().pow(2).mean().sqrt())
    error = float((one - expected).abs().double().pow(2).mean().sqrt())
    return error <= max(_SAME, 10 * torch.finfo(expected.dtype).eps) * max(scale, 1e-30)
