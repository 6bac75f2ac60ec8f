"""Whether tensors still lie where a program was told that they lie, laid out as they were.

Asked before every call about every weight, when all of that is cold in memory. From Python it takes some two
microseconds a weight, so an artifact brings its own C for it, compiled when it was packed (`placement.c`). Where that
is missing or cannot be used, Python looks.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autocompile.runtime.placed import InPython

_LOG = logging.getLogger("autocompile")
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
    except (OSError, AttributeError, _Unknown) as fault:
        _LOG.debug("%s is not used, and Python looks where the weights lie: %s", library, fault)
        return InPython(distinct).hold


class _Unknown(Exception):
    """Tensors here are not what the library takes them for."""


class InC:
    """Looked at by the compiled library, which follows what a tensor's Python object refers to at that time."""

    def __init__(self, tensors: Sequence[torch.Tensor], library: Path) -> None:
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise _Unknown("the interpreter has no lock that would keep them from being swapped meanwhile")
        # Unlike `CDLL`, this keeps the interpreter's lock.
        functions = ctypes.PyDLL(str(library))
        note, unchanged = functions.note, functions.unchanged
        note.restype = unchanged.restype = ctypes.c_int64
        slots: Any = (ctypes.c_void_p * len(tensors))(*map(_slot_of, tensors))
        # Keeps the objects that it points into as long as it is asked about itself.
        slots.tensors = tensors
        count, room = ctypes.c_int64(len(tensors)), sum(3 + 2 * tensor.dim() for tensor in tensors)
        notes = (ctypes.c_int64 * room)()
        if note(slots, count, notes, ctypes.c_int64(room)) != room:
            raise _Unknown("torch does not tell where they lie")
        self.hold: Holds = partial(unchanged, slots, count, notes)


def _slot_of(tensor: torch.Tensor) -> int:
    """The address of the `at::Tensor` in a tensor's Python object: one pointer, to what `_cdata` tells."""
    if tensor.is_complex():
        raise _Unknown("complex ones may be conjugated where they lie, which the library does not see")
    words = type(tensor).__basicsize__ // _WORD
    held = (ctypes.c_void_p * words).from_address(id(tensor))
    for position in range(_HEAD_WORDS, words):
        if held[position] == tensor._cdata:  # noqa: SLF001
            return id(tensor) + position * _WORD
    raise _Unknown("their Python objects do not hold them")
