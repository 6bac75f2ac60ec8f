"""Find what a model's first call leaves behind and later calls read, such as a mask that is made once.

A program is compiled from a model that has been called. In production, the model may not have been called yet, or with
other values or sizes, and would then compute something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from autocompile.runtime.held_tensors import HeldTensors
from autocompile.workload.identity.facts import all_attributes, attributes_read_by, joined, roots_of
from autocompile.workload.identity.plain import text_of

_ABSENT = object()


class FirstCall:
    """The attributes, buffers and weights of `model` before its first call."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._before = dict(_everything(model))
        self._texts = {path: text_of(value) for path, value in self._before.items()}
        self._written = _writes(model)

    def trace(self) -> str:
        """Return what the calls made since then have left behind that calls read, in words, or ""."""
        read = attributes_read_by(self._model)
        for path, value in _everything(self._model):
            text = text_of(value)
            is_other = value is not self._before.get(path, _ABSENT) if text is None else text != self._texts.get(path)
            was_plain = path in self._texts and self._texts[path] is not None
            if is_other and (text is not None or path.rpartition(".")[2] in read):
                kind = "attribute" if was_plain or text is not None else "attribute or buffer"
                return f"it sets its {kind} `{path}` when it is first called, and not before"
        written = self._written
        now = _writes(self._model)
        path = next((path for path, writes in now.items() if path in written and written[path] != writes), "")
        return f"it writes into {path} when it is first called" if path else ""


def _everything(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield all attributes and buffers, each with its path."""
    yield from all_attributes(model)
    for root, top in roots_of(model).items():
        for path, module in top.named_modules():
            yield from ((joined(joined(root, path), name), held) for name, held in module._buffers.items())  # noqa: SLF001


def _writes(model: Any) -> dict[str, tuple[int, int]]:
    """Return the address and the number of writes of each tensor that has them, by path."""
    return {
        path: (tensor.data_ptr(), tensor._version)  # noqa: SLF001
        for path, tensor in HeldTensors(model, packed=()).named().items()
        if tensor.layout is torch.strided and not tensor.is_inference()
    }
