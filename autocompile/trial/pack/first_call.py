"""Find what a model's first call leaves behind and later calls read, such as a mask that is made once.

Calls may leave something in attributes and buffers of modules, in weights, and outside of modules, such as in a global.

A program is compiled from a model that has been called. In production, the model may not have been called yet, or with
other values or sizes, and would then compute something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from autocompile.runtime.held_tensors import HeldTensors
from autocompile.workload.identity.code import code_of
from autocompile.workload.identity.facts import all_attributes, attributes_read_by, joined, roots_of
from autocompile.workload.identity.plain import text_of
from autocompile.workload.identity.state import in_words, outside_values

_ABSENT = object()
_SETS = "when it is first called, and not before"
_REMEDY = "if later calls do not change it, call the model once before tuning, and once before `load`"


class _Written(NamedTuple):
    """A tensor that shares the memory that another had, and how often that memory had been written."""

    alias: torch.Tensor
    times: int


class FirstCall:
    """The attributes, buffers and variables of `model` before its first call, and its weights at the last `begin`."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._within = _Values.of(dict(_everything(model)))
        code = code_of(model)
        self._outside, self._holders = _Values.of(outside_values(code)), frozenset(code.holders)
        self._written: dict[str, _Written] = {}

    def begin(self) -> None:
        """Start to look for writes into weights and buffers. Call this directly before the calls to look at."""
        self._written = _writes(self._model)

    def trace(self) -> str:
        """Return what all calls so far have left behind that calls read, in words, or ""."""
        read = attributes_read_by(self._model)
        for path, text in self._within.others(dict(_everything(self._model))):
            if text is not None or path.rpartition(".")[2] in read:
                return f"it sets its attribute `{path}` {_SETS}; {_REMEDY}"
        for name, _text in self._outside.others(outside_values(code_of(self._model))):
            # What belongs to a function or an object that did not exist before is found by what holds that one.
            if name in self._outside.values or name.rpartition(".")[0] in self._holders:
                return f"it sets {in_words(name)} {_SETS}; {_REMEDY}"
        return ""

    def written(self) -> str:
        """Return what was written into since `begin`, in words, or "". A tensor that only moved does not count."""
        now = _writes(self._model)
        path = next((path for path, then in self._written.items() if path in now and _differ(then, now[path])), "")
        return f"it writes into {path} when it is first called" if path else ""


@dataclass(frozen=True)
class _Values:
    """Values by name, with the texts that the plain ones had."""

    values: Mapping[str, Any]
    texts: Mapping[str, str | None]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> _Values:
        return cls(values, {name: text_of(value) for name, value in values.items()})

    def others(self, now: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
        """Yield the names of those that are others `now`, and their texts if they are plain."""
        for name, value in now.items():
            text = text_of(value)
            if value is not self.values.get(name, _ABSENT) if text is None else text != self.texts.get(name):
                yield name, text


def _differ(then: _Written, now: _Written) -> bool:
    moved = then.alias.data_ptr() != now.alias.data_ptr()
    return then.times != now.times or (moved and not torch.equal(then.alias, now.alias))


def _everything(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield all attributes and buffers, each with its path."""
    yield from all_attributes(model)
    for root, top in roots_of(model).items():
        for path, module in top.named_modules():
            yield from ((joined(joined(root, path), name), held) for name, held in module._buffers.items())  # noqa: SLF001


def _writes(model: Any) -> dict[str, _Written]:
    """Return each tensor whose writes are counted, by path."""
    return {
        path: _Written(tensor.detach(), tensor._version)  # noqa: SLF001
        for path, tensor in HeldTensors(model).named().items()
        if tensor.layout is torch.strided and not tensor.is_inference()
    }
