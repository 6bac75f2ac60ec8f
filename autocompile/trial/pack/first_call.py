"""Prove that what a model keeps from its first call, such as a mask or a table of positions, changes no later result.

A program is compiled from a model that has been called, and production loads it for a model that may not have been
called yet, or with another call. If results depended on the first call, the program would be wrong there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from autocompile.runtime.base import NotPackable
from autocompile.trial.check.batch_proof import named_outputs
from autocompile.trial.check.reference import vary
from autocompile.trial.check.same_values import same_values
from autocompile.workload.axes import FreeAxis, Place, leaves_of, resized
from autocompile.workload.call import Call
from autocompile.workload.copying import copied
from autocompile.workload.identity.facts import all_attributes, joined, roots_of
from autocompile.workload.identity.plain import text_of
from autocompile.workload.opaque import tensors_in
from autocompile.workload.samples import Sample

Named = Sequence[tuple[str, Any]]
_OTHER_SIZES_S = 2.0


class FirstCall:
    """What the first calls of `eager`'s model leave in its attributes and buffers. Make it before the first call."""

    def __init__(self, eager: Call) -> None:
        self._eager = eager
        self._before = _held(eager.model)
        self._untouched = _twin(eager.model)

    def check(self, sample: Sample, axes: Sequence[FreeAxis]) -> dict[str, list[str]]:
        """Return the attributes and buffers that calls have set, with their texts before and after, "" for none.

        None of them changes the result for `sample`: the result of a first call is compared with that after calls with
        other values and other sizes. Raises NotPackable if they differ.
        """
        before, now = self._before, _held(self._eager.model)
        kept = [path for path in now if path not in before or before[path] != now[path]]
        self._refuse_written_buffers()
        if not kept:
            return {}
        words = f"it sets its attribute `{kept[0]}` when it is first called, and not before"
        if self._untouched is None:
            raise NotPackable(words, "model")
        expected = named_outputs(self._fresh(), sample)
        began = time.perf_counter()
        for first, is_needed in self._others(sample, axes):
            if not is_needed and time.perf_counter() - began > _OTHER_SIZES_S:
                break
            if not self._agrees_after(first, sample, expected):
                raise NotPackable(f"{words}, and later results depend on that call", "model")
        return {path: [_text_in(before, path), _text_in(now, path)] for path in kept}

    def _refuse_written_buffers(self) -> None:
        """Raise NotPackable if calls have filled a buffer: a program on a model that was not called would read it."""
        if self._untouched is None:
            return
        as_given = dict(self._untouched.named_buffers())
        for path, buffer in self._eager.model.named_buffers():
            is_same_object = self._before.get(path) == _Same(buffer)
            if is_same_object and path in as_given and not same_values(buffer, as_given[path]):
                raise NotPackable(f"it writes into its buffer {path} when it is first called", "model")

    def tensors(self, kept: Collection[str]) -> list[torch.Tensor]:
        """Return the tensors that are in these attributes now."""
        return list(tensors_in([value for path, value in _everything(self._eager.model) if path in kept]))

    def _others(self, sample: Sample, axes: Sequence[FreeAxis]) -> Iterator[tuple[Sample, bool]]:
        """Yield other calls, each with whether it is needed: other values, and the ends of the axes that vary.

        On a CPU, calls follow with one more and one less of any size. On a GPU, a size that the model does not take may
        make the device unusable.
        """
        yield vary(sample, torch.Generator().manual_seed(0)), True
        for axis in axes:
            yield from ((resized(sample, axis.places, size), True) for size in (axis.low, axis.high))
        if self._eager.device_type == "cpu":
            for size, places in _by_size(sample).items():
                others = (other for other in (size + 1, size - 1) if size and other)
                yield from ((resized(sample, places, other), False) for other in others)

    def _agrees_after(self, first: Sample, sample: Sample, expected: Named) -> bool:
        """Return whether a call after that `first` one returns what is expected, or the model does not take that."""
        call = self._fresh()
        try:
            call.run(first)
        except Exception:  # whatever a model raises for a size that it does not take
            return True
        try:
            return _agree(named_outputs(call, sample), expected)
        except Exception:  # what the first call has left does not fit this call
            return False

    def _fresh(self) -> Call:
        """Return a call of a model that was not called before."""
        return Call(_twin(self._untouched), device_type=self._eager.device_type)


def _by_size(sample: Sample) -> dict[int, frozenset[Place]]:
    """Return the axes of the arguments by their size."""
    places: dict[int, set[Place]] = {}
    for position, leaf in enumerate(leaves_of(sample)):
        for axis, size in enumerate(leaf.shape if isinstance(leaf, torch.Tensor) else ()):
            places.setdefault(size, set()).add((position, axis))
    return {size: frozenset(those) for size, those in places.items()}


def _everything(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield all attributes and buffers, each with its path."""
    yield from all_attributes(model)
    for root, top in roots_of(model).items():
        for path, module in top.named_modules():
            yield from ((joined(joined(root, path), name), held) for name, held in module._buffers.items())  # noqa: SLF001


def _held(model: Any) -> dict[str, Any]:
    """Return attributes and buffers by path: plain ones as text, and others as the objects that they are."""
    found = {}
    for path, value in _everything(model):
        text = text_of(value)
        found[path] = _Same(value) if text is None else text
    return found


def _text_in(held: dict[str, Any], path: str) -> str:
    return text if isinstance(text := held.get(path), str) else ""


class _Same:
    """An object that equals only itself. It is kept, so that no other object gets its address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def _twin(model: Any) -> Any:
    """Return a copy that shares the parameters, or None if the model cannot be copied."""
    if not isinstance(model, nn.Module):
        return None
    try:
        return copied(model, {id(parameter): parameter for parameter in model.parameters()})
    except Exception:  # whatever the model's own attributes raise
        return None


def _agree(found: Named, expected: Named) -> bool:
    return [name for name, _leaf in found] == [name for name, _leaf in expected] and all(
        same_values(leaf, wanted) if isinstance(wanted, torch.Tensor) else bool(leaf == wanted)
        for (_name, leaf), (_same_name, wanted) in zip(found, expected, strict=True)
    )
