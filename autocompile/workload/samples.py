"""Convert the inputs that users give to calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.errors import InvalidWorkload
from autocompile.core.workload import Signature, TensorSpec
from autocompile.workload.opaque import is_batch, mapped, opened, tensors_in

MAX_SAMPLES = 64
_SHAPE_OF_INPUTS = "give a tensor, a tuple of arguments, a dict of keyword arguments, a list of those, or a DataLoader"


@dataclass(frozen=True)
class Sample:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def as_samples(inputs: object) -> tuple[Sample, ...]:
    """Convert a tensor, a tuple (arguments), a mapping (keyword arguments), or a list of these to samples.

    Another object with tensors that has a method `to`, such as a batch of graphs, is the only argument of its call.
    More than 64 samples are thinned evenly, which keeps their distribution. Raises InvalidWorkload for anything else,
    for an empty list and for samples without a tensor.
    """
    many = list(inputs) if isinstance(inputs, list) else [inputs]
    if not many:
        raise InvalidWorkload("an empty list holds no sample", where="inputs", remedy=_SHAPE_OF_INPUTS)
    step = max(1.0, len(many) / MAX_SAMPLES)
    chosen = [many[int(position * step)] for position in range(min(len(many), MAX_SAMPLES))]
    return tuple(_as_sample(one, position, single=len(many) == 1) for position, one in enumerate(chosen))


def _as_sample(one: object, position: int, *, single: bool) -> Sample:
    where = "inputs" if single else f"inputs[{position}]"
    if isinstance(one, Sample):
        sample = one
    elif isinstance(one, Mapping):
        sample = Sample((), {str(name): value for name, value in one.items()})
    elif isinstance(one, torch.Tensor) or is_batch(one):
        sample = Sample((one,), {})
    elif isinstance(one, tuple):
        sample = Sample(tuple(one), {})
    else:
        raise InvalidWorkload(
            f"cannot call the model with a {type(one).__name__}", where=where, remedy=_SHAPE_OF_INPUTS
        )
    if not any(True for _tensor in tensors_in((sample.args, sample.kwargs))):
        raise InvalidWorkload("contains no tensor", where=where, remedy=_SHAPE_OF_INPUTS)
    return sample


def signatures_of(samples: Sequence[Sample]) -> tuple[Signature, ...]:
    """Return the distinct signatures in order of first appearance, weighted by their share of the samples."""
    described = [describe(sample) for sample in samples]
    shares = Counter(described)
    return tuple(
        Signature(tensors=tensors, constants=dict(constants), weight=count / len(samples))
        for (tensors, constants), count in shares.items()
    )


def named_leaves(tree: Any) -> tuple[list[tuple[str, Any]], pytree.TreeSpec]:
    """Return the leaves of nested containers, each with its path, and the structure.

    The parts of a container that was registered without names for them are numbered.
    """
    try:
        leaves, spec = pytree.tree_flatten_with_path(tree)
    except ValueError:
        plain, spec = pytree.tree_flatten(tree)
        return [(f"[{position}]", leaf) for position, leaf in enumerate(plain)], spec
    return [(pytree.keystr(path), leaf) for path, leaf in leaves], spec


def named_parts(sample: Sample) -> Iterator[tuple[str, Any]]:
    """Yield a call's arguments, each with its path; of an object that pytree does not know, its parts."""
    for name, leaf in named_leaves((sample.args, sample.kwargs))[0]:
        yield from opened(name, leaf)


Description = tuple[tuple[TensorSpec, ...], tuple[tuple[str, str], ...]]


def describe(sample: Sample) -> Description:
    """Return the specifications of a call's tensors and constants. They are equal for calls that compile alike."""
    tensors, constants = [], []
    for name, leaf in named_parts(sample):
        if isinstance(leaf, torch.Tensor):
            tensors.append(
                TensorSpec(
                    path=name,
                    dtype=str(leaf.dtype).removeprefix("torch."),
                    shape=tuple(leaf.shape),
                    stride=tuple(leaf.stride()) if leaf.layout == torch.strided else (),
                    device=str(leaf.device),
                )
            )
        else:
            constants.append((name, repr(leaf)))
    return tuple(tensors), tuple(constants)


def clone(sample: Sample) -> Sample:
    """Return the same call on copied memory, because a call may write into its arguments.

    Strides, offsets and memory shared between the tensors are kept: another layout would be another program.
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def copied(leaf: torch.Tensor) -> torch.Tensor:
        if leaf.layout != torch.strided or type(leaf) is not torch.Tensor:
            return leaf.clone()
        source = leaf.untyped_storage()
        storage = storages.setdefault(source._cdata, source.clone())  # type: ignore[no-untyped-call]  # noqa: SLF001
        own = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        return own.set_(storage, leaf.storage_offset(), leaf.shape, leaf.stride())

    return Sample(*mapped(copied, (sample.args, sample.kwargs)))


def device_of(sample: Sample) -> torch.device:
    """Return the device of a call's first tensor. Raises StopIteration if it has none."""
    return next(tensor.device for tensor in tensors_in((sample.args, sample.kwargs)))
