"""Prove that calls may be padded to a few sizes: the model accepts a mask, and padding changes no output."""

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

# A tolerance, because padded calls are computed in another order than those without padding.
_SAME = 1e-3
# The value of a mask for positions to ignore: usually 0; `key_padding_mask` of torch.nn.MultiheadAttention uses True.
_MASK_FILLS = (0, 1)
# Three sizes times two fills of the mask, each without padding and with two kinds of padding; calls are up to twice as
# large as the samples.
CALLS_OF_A_PROOF = 36


@dataclass(frozen=True)
class PaddingProof:
    """The buckets, if it is proved that padding to them changes no output; else the `problem`."""

    buckets: Buckets | None = None
    problem: str = ""


def prove_padding(call: Call, samples: Sequence[Sample]) -> PaddingProof:
    """Prove whether calls may be padded to buckets.

    The model must accept a mask (an argument with `mask` in its name). With the padding masked out, the outputs of a
    padded call, cut back to the original size, must equal those of the original call. This is tried on the smallest,
    the largest and a middle sample, with padding of zeros and with padding that repeats the sample's own values.
    """
    if len(by_form(samples)) != 1:
        return PaddingProof(problem="the calls are of several forms")
    arguments = [*samples[0].args, *samples[0].kwargs.values()]
    if any(not pytree.tree_structure(argument).is_leaf() for argument in arguments):
        return PaddingProof(problem="some arguments are nested")
    axes = [axis for axis in free_axes(samples, frozenset()) if len(set(axis.seen)) > 1]
    if len(axes) != 1:
        return PaddingProof(problem=f"{len(axes) or 'no'} sizes vary independently, and only one can be filled up")
    axis = axes[0]
    masks = _masks(call, samples[0], axis)
    if not masks:
        return PaddingProof(problem="the model is given no mask that could mark the filling")
    problem = ""
    for mask_fill in _MASK_FILLS:
        padded = tuple(PaddedAxis(leaf, at, mask_fill if leaf in masks else 0) for leaf, at in sorted(axis.places))
        try:
            return PaddingProof(_proved(call, samples, axis, padded, masks))
        except _ChangesOutputs as fault:
            problem = problem or str(fault)
        except Exception as fault:  # whatever a model raises for a size that it does not accept
            problem = problem or f"the model does not accept a filled call: {_first_line(fault)}"
    return PaddingProof(problem=problem)


class _ChangesOutputs(Exception):
    """Padding changes the outputs. The message gives the reason."""


def _proved(
    call: Call,
    samples: Sequence[Sample],
    axis: FreeAxis,
    padded: tuple[PaddedAxis, ...],
    masks: frozenset[int],
) -> Buckets:
    """Return the buckets, with the axes of the outputs to cut back. Raises _ChangesOutputs."""
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
    """Return the axes of the outputs that have the bucket's size instead of the call's.

    Raises _ChangesOutputs if the outputs still differ after these axes are cut back.
    """
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
    # Element by element, as an effect of the padding on a few elements would not show in a mean over all.
    scale = float(wanted.abs().double().pow(2).mean().sqrt())
    error = float((output - wanted).abs().double().max())
    return error <= max(_SAME, 10 * torch.finfo(wanted.dtype).eps) * max(scale, 1e-30)


def _with_values(
    nothing_there: Sequence[Any], leaves: Sequence[Any], padded: Sequence[PaddedAxis], masks: frozenset[int]
) -> list[Any]:
    """Return the padded leaves with the call's own values repeated in the padding, except in masks."""
    repeated = list(nothing_there)
    for place in padded:
        if place.leaf not in masks:
            given = leaves[place.leaf]
            longer = nothing_there[place.leaf].shape[place.axis]
            index = torch.arange(longer, device=given.device) % given.shape[place.axis]
            repeated[place.leaf] = given.index_select(place.axis, index)
    return repeated


def _masks(call: Call, sample: Sample, axis: FreeAxis) -> frozenset[int]:
    """Return the arguments that are masks along this axis, according to their names."""
    along = {leaf for leaf, _axis in axis.places}
    names = _argument_names(call, sample)
    return frozenset(leaf for leaf, name in enumerate(names) if leaf in along and "mask" in name.lower())


def _argument_names(call: Call, sample: Sample) -> list[str]:
    """Return the names of the call's arguments, or their positions if the names are unknown."""
    names = parameter_names(call.model)[: len(sample.args)]
    return [*(names or (f"[{position}]" for position in range(len(sample.args)))), *sample.kwargs]


def _to_be_filled(samples: Sequence[Sample], axis: FreeAxis, sizes: Sequence[int]) -> Iterator[tuple[Sample, int, int]]:
    """Yield the smallest, the largest and a middle sample, each with its size and its bucket.

    A sample that fills its bucket is shortened, so that the model is never called with more than the largest size.
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
