"""Forms of batches: which forms were tuned, and how another one differs from them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autocompile.core.errors import UsageError
from autocompile.core.workload import Signature, TensorSpec
from autocompile.workload.samples import Sample, describe
from autocompile.workload.training.training import known

# The dtype and the shape of each tensor of a batch, by its place in the batch.
Form = dict[str, tuple[str, tuple[int, ...]]]


def check_count(batches: Sequence[Any], accumulate: int, *, is_first: bool) -> str:
    """Return what is probably wrong with the number of a step's batches, or "". Raises UsageError if it is impossible.

    The last step of an epoch may have fewer batches than the others, but hardly the first step of a loop.
    """
    count = len(batches)
    if not 1 <= count <= accumulate:
        takes = "one batch" if accumulate == 1 else f"1 to {accumulate} batches"
        remedy = "give each batch as one argument" if accumulate > 1 else "give a batch of several parts as one tuple"
        raise UsageError(f"a step takes {takes}, but {count} were given", where="batches", remedy=remedy)
    if not is_first or count == accumulate:
        return ""
    given = "1 batch" if count == 1 else f"{count} batches"
    return f"the first step got {given}, but {accumulate} were tuned; give the batches of a step as step(*batches)"


def key_of(batches: Sequence[Any]) -> Hashable:
    """Return a key that is equal for steps that one compilation serves. Takes microseconds."""
    return tuple([_key(known(batch)) for batch in batches])


def _key(tree: Any) -> Hashable:
    """Return the key of a batch. Plain containers are handled without pytree, which takes several times as long."""
    if isinstance(tree, torch.Tensor):
        return tree.dtype, tree.shape, tree.stride() if tree.layout == torch.strided else ()
    kind = type(tree)
    if kind is tuple or kind is list:
        return (kind, *[_key(one) for one in tree])
    if kind is dict:
        return (kind, *tree, *[_key(one) for one in tree.values()])
    if pytree.tree_is_leaf(tree):
        return repr(tree)
    leaves, spec = pytree.tree_flatten(tree)
    return (spec, *[_key(leaf) for leaf in leaves])


def tuned_forms(signatures: Iterable[Signature], batch: int = 0) -> list[Form]:
    """Return the forms of the batches that were tuned, with `batch` samples if that is not 0."""
    forms: list[Form] = []
    for signature in signatures:
        by_batch: dict[str, list[TensorSpec]] = {}
        for spec in signature.tensors:
            by_batch.setdefault(_batch_of(spec.path), []).append(spec)
        made = (_form(specs) for specs in by_batch.values())
        forms += [form for form in (_resized(one, batch) if batch else one for one in made) if form not in forms]
    return forms


def how_it_differs(batches: Sequence[Any], tuned: Sequence[Form]) -> str:
    """Return how the first batch of another form differs from the most similar tuned form, in words; else ""."""
    for batch in batches:
        form = _form(describe(Sample((known(batch),), {}))[0])
        if tuned and form not in tuned:
            nearest = min(tuned, key=lambda one: len(one.items() ^ form.items()))
            return _difference(form, nearest)
    return ""


def _batch_of(path: str) -> str:
    """Return `[0][1]` for `[0][1]['x']`: the arguments of a sample are its batches."""
    return "".join(f"{part}]" for part in path.split("]")[:2])


def _form(specs: Iterable[TensorSpec]) -> Form:
    return {spec.path.removeprefix(_batch_of(spec.path)): (spec.dtype, spec.shape) for spec in specs}


def _resized(form: Form, batch: int) -> Form:
    return {path: (dtype, (batch, *shape[1:]) if shape else shape) for path, (dtype, shape) in form.items()}


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
