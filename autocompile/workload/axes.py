"""Which axes of the arguments may differ from call to call: those that do, and those of independent samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.sizes import reach
from autocompile.workload.reference import preserved_buffers
from autocompile.workload.samples import Sample, clone, named_leaves

# Halves of a batch are computed in another order than the whole.
_SAME = 1e-3
# Fewer samples than these are made so many, to see whether they influence each other.
_FOR_PROOF = 4

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
        low = 1 if places & batch or min(sizes) == 1 else min(2, *sizes)
        found.append(FreeAxis(f"n{position}", frozenset(places), sizes, low, reach(max(sizes))))
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


@dataclass(frozen=True)
class BatchProof:
    """How many samples a call holds and along which axes, if they are proved to be independent; else the `problem`."""

    size: int = 0
    places: frozenset[Place] = frozenset()
    problem: str = ""


def batch_axis(call: Callable[..., Any], sample: Sample) -> frozenset[Place]:
    """The first axes of the arguments, if there are several samples along them that are proved to be independent."""
    proof = prove_batch(call, sample)
    return frozenset() if proof.problem or proof.size < 2 else proof.places


def prove_batch(call: Callable[..., Any], sample: Sample) -> BatchProof:
    """Whether the first axes of the arguments are a batch.

    Proved: every output has that axis too, and what a part of the samples gives is that part of what all give.
    It is tried on samples that differ: each one's last axis rotated and its floats scaled, as samples that are all
    the same have no influence that could be seen.
    """
    places = first_axes(sample)
    sizes = {leaves_of(sample)[leaf].shape[axis] for leaf, axis in places}
    if not sizes:
        return BatchProof(problem="no argument is a tensor with an axis")
    if len(sizes) != 1:
        return BatchProof(problem=f"the arguments' first axes differ in size: {sorted(sizes)}")
    given = sizes.pop()
    size = max(given, _FOR_PROOF)
    several = _told_apart(resized(sample, places, size), places)
    try:
        whole = _outputs(call, several)
        for part in (size // 2, 1):
            found = _outputs(call, resized(several, places, part))
            if len(found) != len(whole) or not all(_has_axis(one, size) for one in whole):
                return BatchProof(given, problem="not every output has a batch axis")
            if not all(_is_part(one, all_, part) for one, all_ in zip(found, whole, strict=True)):
                return BatchProof(given, problem="samples of a call influence each other, as batch statistics do")
    except Exception as fault:  # a model that takes no other size, in whatever words it says so
        said = str(fault).splitlines()
        return BatchProof(given, problem=f"the model takes no other batch: {said[0] if said else type(fault).__name__}")
    return BatchProof(given, places)


def batch_of(sample: Sample) -> int:
    """Samples in a call whose batch axis is proved."""
    leaf, axis = min(first_axes(sample))
    return int(leaves_of(sample)[leaf].shape[axis])


def first_axes(sample: Sample) -> frozenset[Place]:
    """The first axis of every tensor among the arguments that has any."""
    leaves = enumerate(leaves_of(sample))
    return frozenset((i, 0) for i, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0)


def _told_apart(sample: Sample, places: frozenset[Place]) -> Sample:
    """Each sample of the batch another one, with values like those that its kind of argument has."""
    leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
    for leaf, _axis in places:
        rows = list(leaves[leaf])
        if leaves[leaf].dim() > 1:
            rows = [row.roll(shift, -1) for shift, row in enumerate(rows)]
        if leaves[leaf].is_floating_point():
            rows = [row * (1 + shift / len(rows)) for shift, row in enumerate(rows)]
        leaves[leaf] = torch.stack(rows)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return Sample(args, kwargs)


def named_outputs(call: Callable[..., Any], sample: Sample) -> list[tuple[str, Any]]:
    """What a call returns, flattened, each with its name; it leaves no trace in the sample or in buffers."""
    own = clone(sample)
    with torch.no_grad(), preserved_buffers(call):
        return [(f"output{where}", leaf) for where, leaf in named_leaves(call(*own.args, **own.kwargs))[0]]


def _outputs(call: Callable[..., Any], sample: Sample) -> list[torch.Tensor]:
    return [one for _name, one in named_outputs(call, sample) if isinstance(one, torch.Tensor)]


def _has_axis(whole: torch.Tensor, size: int) -> bool:
    return whole.dim() > 0 and whole.shape[0] == size


def _is_part(one: torch.Tensor, whole: torch.Tensor, part: int) -> bool:
    if one.shape != (part, *whole.shape[1:]):
        return False
    expected = whole[:part]
    if not expected.is_floating_point() and not expected.is_complex():
        return torch.equal(one, expected)
    scale = float(expected.abs().double().pow(2).mean().sqrt())
    error = float((one - expected).abs().double().pow(2).mean().sqrt())
    return error <= max(_SAME, 10 * torch.finfo(expected.dtype).eps) * max(scale, 1e-30)
