"""Whether tensors still lie where a program was told that they lie, laid out as they were.

Asked before every call about every weight, when all of that is cold in memory. From Python it takes some two
microseconds a weight, so an artifact brings its own C for it, compiled when it was packed (`placement.c`). Where that
is missing or cannot be used, Python looks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autocompile.artifact.confirming import Confirmation, confirmation_of

SOURCE = Path(__file__).with_suffix(".c")
_WORD = ctypes.sizeof(ctypes.c_void_p)
# Of every Python object: its count of references, and its type.
_HEAD_WORDS = 2


# Nonzero while nothing has changed.
Holds = Callable[[], int]


def placement_of(tensors: Sequence[torch.Tensor], library: Path | None) -> Holds:
    """What tells, when called, whether these tensors' addresses, sizes, strides and dtypes are what they are now.

    `library` is `placement.c`, compiled; None, or one that cannot be used here, leaves it to Python.
    """
    # Torch's own check takes no tensor twice, which tied weights are.
    distinct = list({id(tensor): tensor for tensor in tensors}.values())
    if library is None or not distinct:
        return InPython(distinct).hold
    try:
        return InC(distinct, library).hold
    except (OSError, AttributeError, _Unknown):
        return InPython(distinct).hold


class _Unknown(Exception):
    """Tensors of this torch are not what the library takes them for."""


class InC:
    """Looked at by the compiled library, which follows what a tensor's Python object refers to at that time.

    `hold` looks into the tensors' Python objects: whoever calls it keeps them.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], library: Path) -> None:
        # The interpreter's lock is kept during a call, so that nothing moves meanwhile.
        functions = ctypes.PyDLL(str(library))
        note, unchanged = functions.note, functions.unchanged
        note.restype = unchanged.restype = ctypes.c_int64
        slots = (ctypes.c_void_p * len(tensors))(*map(_slot_of, tensors))
        count, room = ctypes.c_int64(len(tensors)), sum(3 + 2 * tensor.dim() for tensor in tensors)
        notes = (ctypes.c_int64 * room)()
        if note(slots, count, notes, ctypes.c_int64(room)) != room:
            raise _Unknown
        self.hold: Holds = partial(unchanged, slots, count, notes)


def _slot_of(tensor: torch.Tensor) -> int:
    """The address of the `at::Tensor` in a tensor's Python object: one pointer, to what `_cdata` tells."""
    words = type(tensor).__basicsize__ // _WORD
    held = (ctypes.c_void_p * words).from_address(id(tensor))
    for position in range(_HEAD_WORDS, words):
        if held[position] == tensor._cdata:  # noqa: SLF001
            return id(tensor) + position * _WORD
    raise _Unknown


class InPython:
    """The same, looked at one by one."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._addresses, self._layouts = self._look_where(), self._look_how()
        self._confirms = {mode: self._confirmation(in_inference_mode=mode) for mode in (False, True)}

    def hold(self) -> bool:
        """Whether nothing has changed."""
        if self._look_where() != self._addresses:
            return False
        return self._confirms[torch.is_inference_mode_enabled()](*self._tensors) or self._look_how() == self._layouts

    def _confirmation(self, *, in_inference_mode: bool) -> Confirmation:
        with torch.inference_mode(in_inference_mode):
            return confirmation_of(self._tensors)

    def _look_where(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, self._tensors))

    def _look_how(self) -> list[Any]:
        return [(tensor.stride(), tensor.shape, tensor.dtype) for tensor in self._tensors]
