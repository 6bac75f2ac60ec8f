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
from autocompile.runtime.records import Unknown, slot_of

_LOG = logging.getLogger("autocompile")
SOURCE = Path(__file__).with_suffix(".c")
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
    except (OSError, AttributeError, Unknown) as fault:
        _LOG.debug("%s is not used, and Python looks where the weights lie: %s", library, fault)
        return InPython(distinct).hold


class InC:
    """Looked at by the compiled library, which follows what a tensor's Python object refers to at that time."""

    def __init__(self, tensors: Sequence[torch.Tensor], library: Path) -> None:
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise Unknown("the interpreter has no lock that would keep them from being swapped meanwhile")
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
            raise Unknown("torch does not tell where they lie")
        self.hold: Holds = partial(unchanged, slots, count, notes)


def _slot_of(tensor: torch.Tensor) -> int:
    """Where the library finds it. Raises Unknown."""
    if tensor.is_complex():
        raise Unknown("complex ones may be conjugated where they lie, which the library does not see")
    return slot_of(tensor)
