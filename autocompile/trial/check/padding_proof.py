"""Whether calls may be filled up to a few sizes: where the model takes a mask, and filling changes no output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.buckets import Buckets, CutAxis, PaddedAxis, bucket_sizes
from autocompile.runtime.padding import filled, kind_of
from autocompile.trial.check.batch_proof import named_outputs
from autocompile.workload.axes import FreeAxis, free_axes, resized
from autocompile.workload.call import Call
from autocompile.workload.forms import by_form, parameter_names
from autocompile.workload.samples import Sample

Named = Sequence[tuple[str, Any]]

# Filled calls are computed in another order than those without filling.
_SAME = 1e-3
# What a mask says of a place to leave out: most say 0; `key_padding_mask` of torch.nn.MultiheadAttention says True.
_MASK_FILLS = (0, 1)
# Three sizes, by two fills of the mask, each as it is and filled in two ways; up to twice as large as the samples.
CALLS_OF_A_PROOF = 36


@dataclass(frozen=True)
class PaddingProof:
    """The buckets, if filling up to them is proved to change no output; else the `problem`."""

    buckets: Buckets | None = None
    problem: str = ""


def prove_padding(call: Call, samples: Sequence[Sample]) -> PaddingProof:
    """Whether calls may be filled up to buckets.

    Proved, on the smallest, the largest and a middle sample: the model takes a mask (an argument with `mask` in its
    name), and with the mask saying so, the outputs for a filled call, cut back, are those of the call as it is, whether
    the filled places hold nothing or the sample's own values again.
    """
    if len(by_form(samples)) != 1:
        return PaddingProof(problem="the calls are of several forms")
    arguments = [*samples[0].args, *samples[0].kwargs.values()]
    if any(not pytree.tree_structure(argument).is_leaf() for argument in arguments):
        return PaddingProof(problem="arguments are nested in others")
    axes = [axis for axis in free_axes(samples, frozenset()) if len(set(axis.seen)) > 1]
    if len(axes) != 1:
        return PaddingProof(problem=f"{len(axes) or 'no'} sizes vary independently, and one can be filled up")
    axis = axes[0]
    masks = _masks(call, samples[0], axis)
    if not masks:
        return PaddingProof(problem="the model is given no mask that could say what is filling")
    problem = ""
    for mask_fill in _MASK_FILLS:
        padded = tuple(PaddedAxis(leaf, at, mask_fill if leaf in masks else 0) for leaf, at in sorted(axis.places))
        try:
            return PaddingProof(_proved(call, samples, axis, padded, masks))
        except _ChangesOutputs as fault:
            problem = problem or str(fault)
        except Exception as fault:  # whatever a model raises for a size that is not its own
            problem = problem or f"the model does not take a filled call: {_first_line(fault)}"
    return PaddingProof(problem=problem)


class _ChangesOutputs(Exception):
    """Filling is not harmless; says why."""


def _proved(
    call: Call,
    samples: Sequence[Sample],
    axis: FreeAxis,
    padded: tuple[PaddedAxis, ...],
    masks: frozenset[int],
) -> Buckets:
    """The buckets, with what is to be cut back. Raises _ChangesOutputs."""
    sizes = bucket_sizes(axis.seen)
    cuts: set[tuple[CutAxis, ...]] = set()
    for sample, size, bucket in _to_be_filled(samples, axis, sizes):
        expected = named_outputs(call, sample)
        leaves = [*sample.args, *sample.kwargs.values()]
        nothing_there = filled(leaves, padded, bucket - size)
        tried = {
            "with 0": nothing_there,
            "with its own values again": _with_values(nothing_there, leaves, padded, masks),
        }
        for how, arguments in tried.items():
            named = dict(zip(sample.kwargs, arguments[len(sample.args) :], strict=True))
            outputs = named_outputs(call, Sample(tuple(arguments[: len(sample.args)]), named))
            try:
                cuts.add(_cut_axes(outputs, expected, bucket, size))
            except _ChangesOutputs as fault:
                filling = _filling(_argument_names(call, sample), padded, masks, how)
                raise _ChangesOutputs(f"{fault}, {filling}") from None
    if len(cuts) != 1:
        raise _ChangesOutputs("the outputs' sizes follow the filling in different ways")
    return Buckets(
        sizes=sizes,
        padded=padded,
        cut=cuts.pop(),
        positional=len(sample.args),
        keywords=tuple(sample.kwargs),
        kinds=tuple(map(kind_of, leaves)),
        outputs=len(expected),
    )


def _cut_axes(outputs: Named, expected: Named, bucket: int, size: int) -> tuple[CutAxis, ...]:
    """The axes that have the bucket's size instead of the call's. Raises _ChangesOutputs if values differ then."""
    differs = f"of a call of size {size} filled up to {bucket} differs"
    if len(outputs) != len(expected):
        raise _ChangesOutputs(f"the number of outputs {differs}")
    cut = []
    for leaf, ((name, output), (_name, wanted)) in enumerate(zip(outputs, expected, strict=True)):
        if not isinstance(output, torch.Tensor) or not isinstance(wanted, torch.Tensor):
            if type(output) is not type(wanted) or output != wanted:
                raise _ChangesOutputs(f"{name} {differs}")
            continue
        shorter = output
        for axis in range(min(output.dim(), wanted.dim())):
            if output.shape[axis] == bucket and wanted.shape[axis] == size:
                cut.append(CutAxis(leaf, axis))
                shorter = shorter.narrow(axis, 0, size)
        if not _same(shorter, wanted):
            raise _ChangesOutputs(f"{name} {differs}")
    return tuple(cut)


def _filling(names: Sequence[str], padded: Sequence[PaddedAxis], masks: frozenset[int], how: str) -> str:
    """`with attention_mask filled with 0 and input_ids with its own values again`."""
    told = {names[axis.leaf]: f"with {axis.fill}" for axis in padded if axis.leaf in masks}
    told.update({names[axis.leaf]: how for axis in padded if axis.leaf not in masks})
    return "with " + " and ".join(f"{name}{' filled' * (not n)} {what}" for n, (name, what) in enumerate(told.items()))


def _same(output: torch.Tensor, wanted: torch.Tensor) -> bool:
    if output.shape != wanted.shape or output.dtype != wanted.dtype:
        return False
    if not wanted.is_floating_point() and not wanted.is_complex():
        return torch.equal(output, wanted)
    if not wanted.numel():
        return True
    # Element by element, as a few places that the filling reaches would be lost in a mean over all.
    scale = float(wanted.abs().double().pow(2).mean().sqrt())
    error = float((output - wanted).abs().double().max())
    return error <= max(_SAME, 10 * torch.finfo(wanted.dtype).eps) * max(scale, 1e-30)


def _with_values(
    nothing_there: Sequence[Any], leaves: Sequence[Any], padded: Sequence[PaddedAxis], masks: frozenset[int]
) -> list[Any]:
    """The same with the call's own values, again, in these places, but for the masks."""
    repeated = list(nothing_there)
    for place in padded:
        if place.leaf not in masks:
            given = leaves[place.leaf]
            longer = nothing_there[place.leaf].shape[place.axis]
            index = torch.arange(longer, device=given.device) % given.shape[place.axis]
            repeated[place.leaf] = given.index_select(place.axis, index)
    return repeated


def _masks(call: Call, sample: Sample, axis: FreeAxis) -> frozenset[int]:
    """The arguments that are masks along this axis, going by their names."""
    along = {leaf for leaf, _axis in axis.places}
    names = _argument_names(call, sample)
    return frozenset(leaf for leaf, name in enumerate(names) if leaf in along and "mask" in name.lower())


def _argument_names(call: Call, sample: Sample) -> list[str]:
    """What the call's arguments are named, by position where that cannot be told."""
    names = parameter_names(call.model)[: len(sample.args)]
    return [*(names or (f"[{position}]" for position in range(len(sample.args)))), *sample.kwargs]


def _to_be_filled(samples: Sequence[Sample], axis: FreeAxis, sizes: Sequence[int]) -> Iterator[tuple[Sample, int, int]]:
    """The smallest, the largest and one between, each with its size and its bucket.

    One that fills its bucket is made shorter, as nothing beyond the largest is asked of the model.
    """
    by_size = dict(zip(axis.seen, samples, strict=True))
    ordered = sorted(size for size in by_size if size > 1)
    for size in sorted({ordered[0], ordered[len(ordered) // 2], ordered[-1]}):
        bucket = next(bucket for bucket in sizes if bucket >= size)
        fits = min(size, bucket - 1)
        yield (by_size[size] if fits == size else resized(by_size[size], axis.places, fits)), fits, bucket


def _first_line(fault: Exception) -> str:
    said = str(fault).splitlines()
    return said[0] if said else type(fault).__name__
