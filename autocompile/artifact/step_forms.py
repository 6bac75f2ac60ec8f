"""Of which forms batches are: which were tuned, and how another one differs from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.workload import Signature, TensorSpec
from autocompile.workload.samples import Sample, describe
from autocompile.workload.training.training import known

# The dtype and the shape of each tensor of a batch, by where it sits in it.
Form = dict[str, tuple[str, tuple[int, ...]]]


def key_of(batches: Sequence[Any]) -> Hashable:
    """Equal for steps that one compilation serves; microseconds."""
    leaves, spec = pytree.tree_flatten([known(batch) for batch in batches])
    described = tuple(
        (leaf.dtype, leaf.shape, leaf.stride() if leaf.layout == torch.strided else ())
        if isinstance(leaf, torch.Tensor)
        else repr(leaf)
        for leaf in leaves
    )
    return described, spec


def tuned_forms(signatures: Iterable[Signature]) -> list[Form]:
    """Of the batches that steps were tuned with."""
    forms: list[Form] = []
    for signature in signatures:
        by_batch: dict[str, list[TensorSpec]] = {}
        for spec in signature.tensors:
            by_batch.setdefault(_batch_of(spec.path), []).append(spec)
        forms += [form for form in map(_form, by_batch.values()) if form not in forms]
    return forms


def how_it_differs(batches: Sequence[Any], tuned: Sequence[Form]) -> str:
    """How the first batch of another form differs from the tuned one that is most like it, in words; else ""."""
    for batch in batches:
        form = _form(describe(Sample((known(batch),), {}))[0])
        if tuned and form not in tuned:
            nearest = min(tuned, key=lambda one: len(one.items() ^ form.items()))
            return _difference(form, nearest)
    return ""


def _batch_of(path: str) -> str:
    """`[0][1]` of `[0][1]['x']`: a sample's arguments are its batches."""
    return "".join(f"{part}]" for part in path.split("]")[:2])


def _form(specs: Iterable[TensorSpec]) -> Form:
    return {spec.path.removeprefix(_batch_of(spec.path)): (spec.dtype, spec.shape) for spec in specs}


def _difference(form: Form, other: Form) -> str:
    path = next(path for path in {**other, **form} if form.get(path) != other.get(path))
    where = f"its tensor {path}" if path else "it"
    if path not in form:
        return f"it has no tensor at {path}"
    if path not in other:
        return f"{where} is not among those tuned with"
    return f"{where} is {_words(form[path])}, was {_words(other[path])}"


def _words(spec: tuple[str, tuple[int, ...]]) -> str:
    return f"{spec[0]} of shape {spec[1]}"
