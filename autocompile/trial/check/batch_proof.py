"""Prove that the samples of a call are independent, so that a call may hold more or fewer of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.workload.axes import Place, first_axes, leaves_of, resized
from autocompile.workload.samples import Sample, clone, named_leaves
from autocompile.workload.step import Step

# A tolerance, because parts of a batch are computed in another order than the whole.
_SAME = 1e-3
# A smaller batch is enlarged to this size, to see whether its samples influence each other.
_FOR_PROOF = 4
# A proof takes at most as long as this many calls with one sample.
CALLS_OF_A_BATCH_PROOF = 10
_NO_AXIS = "not every output has a batch axis"


@dataclass(frozen=True)
class BatchProof:
    """The number of samples in a call and their axes, if they are proved to be independent; else the `problem`."""

    size: int = 0
    places: frozenset[Place] = frozenset()
    problem: str = ""


def batch_axis(step: Step, sample: Sample) -> frozenset[Place]:
    """Return the arguments' first axes if they hold several samples that are proved to be independent, else none."""
    proof = prove_batch(step, sample)
    return frozenset() if proof.problem or proof.size < 2 else proof.places


def prove_batch(step: Step, sample: Sample) -> BatchProof:
    """Prove whether the first axes of the arguments are a batch.

    They are if every output has that axis too, and the outputs for a part of the samples equal that part of the outputs
    for all. This is tried with samples that differ: their last axes are rotated and their floats scaled. An influence
    among identical samples could not be seen.
    """
    places = first_axes(sample)
    sizes = {leaves_of(sample)[leaf].shape[axis] for leaf, axis in places}
    if not sizes:
        return BatchProof(problem="no argument is a tensor with an axis")
    if len(sizes) != 1:
        return BatchProof(problem=f"the arguments' first axes differ in size: {sorted(sizes)}")
    given = sizes.pop()
    size = max(given, _FOR_PROOF)
    several = told_apart(resized(sample, places, size), places)
    try:
        problem = _influence(step, sample, several, places, size)
    except Exception as fault:  # whatever a model raises that does not accept another size
        said = str(fault).splitlines()
        problem = f"the model accepts no other batch size: {said[0] if said else type(fault).__name__}"
    return BatchProof(given, problem=problem) if problem else BatchProof(given, places)


def _influence(step: Step, sample: Sample, several: Sample, places: frozenset[Place], size: int) -> str:
    """Return why the outputs for `several` samples differ from those for parts of them, or ""."""
    whole = _outputs(step, several)
    if not whole or not all(_has_axis(output, size) for output in whole):
        return _NO_AXIS
    if _draws(step, sample):
        return "random numbers are drawn for all samples of a call together"
    for part in (size // 2, 1):
        fewer = _outputs(step, resized(several, places, part))
        if len(fewer) != len(whole):
            return _NO_AXIS
        if not all(_is_part(output, all_, part) for output, all_ in zip(fewer, whole, strict=True)):
            return "samples of a call influence each other, as batch statistics do"
    return ""


def told_apart(sample: Sample, places: frozenset[Place]) -> Sample:
    """Make all samples of the batch different, with values of the same kind as the given ones."""
    leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
    for leaf, _axis in places:
        leaves[leaf] = _rows_apart(leaves[leaf])
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return Sample(args, kwargs)


def _rows_apart(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy whose row `i` is rotated by `i` along the last axis and multiplied by `1 + i / len(tensor)`.

    A tensor may have millions of rows, so rows with the same rotation are rotated together.
    """
    rows = tensor.clone()
    count, width = len(rows), rows.shape[-1]
    if rows.dim() > 1:
        for shift in range(1, min(count, width)):
            rows[shift::width] = rows[shift::width].roll(shift, -1)
    if rows.is_floating_point():
        scales = 1 + torch.arange(count, device=rows.device) / count
        rows.mul_(scales.view(-1, *[1] * (rows.dim() - 1)))
    return rows


def named_outputs(step: Step, sample: Sample) -> list[tuple[str, Any]]:
    """Return the flattened outputs of a step with their names. The sample and the step's state are left unchanged."""
    own = clone(sample)
    with step.preserved():
        return [(f"output{where}", leaf) for where, leaf in named_leaves(step.work(own))[0]]


def _draws(step: Step, sample: Sample) -> bool:
    """Whether the outputs depend on the state of the random number generator."""
    one, other = (step.observe(sample, seed).leaves for seed in (0, 1))
    return any(
        not torch.equal(leaf.nan_to_num(), other[name].nan_to_num())
        for name, leaf in one.items()
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    )


def _outputs(step: Step, sample: Sample) -> list[torch.Tensor]:
    return [leaf for _name, leaf in named_outputs(step, sample) if isinstance(leaf, torch.Tensor)]


def _has_axis(whole: torch.Tensor, size: int) -> bool:
    return whole.dim() > 0 and whole.shape[0] == size


def _is_part(output: torch.Tensor, whole: torch.Tensor, part: int) -> bool:
    if output.shape != (part, *whole.shape[1:]):
        return False
    expected = whole[:part]
    if not expected.is_floating_point() and not expected.is_complex():
        return torch.equal(output, expected)
    scale = float(expected.abs().double().pow(2).mean().sqrt())
    error = float((output - expected).abs().double().pow(2).mean().sqrt())
    return error <= max(_SAME, 10 * torch.finfo(expected.dtype).eps) * max(scale, 1e-30)
