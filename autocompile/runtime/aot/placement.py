"""Check whether tensors are still at the addresses, and in the layout, that a program was given.

The check runs before every call for every weight, when none of this is in the processor's caches. From Python it takes
some two microseconds per weight. Therefore an artifact contains a C library for it, compiled when the artifact was
packed (`placement.c`). If that library is missing or cannot be used, Python does the check.
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
from autocompile.runtime.records import Unknown, slot_of

_LOG = logging.getLogger("autocompile")
SOURCE = Path(__file__).with_suffix(".c")
# Nonzero while nothing has changed.
Holds = Callable[[], int]


def placement_of(tensors: Sequence[torch.Tensor], library: Path | None) -> Holds:
    """Return a function that checks whether the tensors' addresses, sizes, strides and dtypes are still the same.

    `library` is the compiled `placement.c`. If it is None or cannot be used here, Python does the check.
    """
    # Torch's own check does not accept a tensor twice, as with tied weights.
    distinct = list({id(tensor): tensor for tensor in tensors}.values())
    if library is None or not distinct:
        return InPython(distinct).hold
    try:
        return InC(distinct, library).hold
    except (OSError, AttributeError, Unknown) as fault:
        _LOG.debug("%s is not used; Python checks the weights' addresses instead: %s", library, fault)
        return InPython(distinct).hold


class InC:
    """The check in the compiled library, which follows the present pointers in the tensors' Python objects."""

    def __init__(self, tensors: Sequence[torch.Tensor], library: Path) -> None:
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise Unknown("without the interpreter's lock, tensors could be swapped during the check")
        # Unlike `CDLL`, this keeps the interpreter's lock.
        functions = ctypes.PyDLL(str(library))
        note, unchanged = functions.note, functions.unchanged
        note.restype = unchanged.restype = ctypes.c_int64
        slots: Any = (ctypes.c_void_p * len(tensors))(*map(_slot_of, tensors))
        # Keeps the objects alive to which the pointers belong.
        slots.tensors = tensors
        count, room = ctypes.c_int64(len(tensors)), sum(3 + 2 * tensor.dim() for tensor in tensors)
        notes = (ctypes.c_int64 * room)()
        if note(slots, count, notes, ctypes.c_int64(room)) != room:
            raise Unknown("torch does not give their addresses")
        self.hold: Holds = partial(unchanged, slots, count, notes)


def _slot_of(tensor: torch.Tensor) -> int:
    """Return the address at which the library finds the tensor. Raises Unknown."""
    if tensor.is_complex():
        raise Unknown("complex tensors may be conjugated in place, which the library does not detect")
    return slot_of(tensor)
