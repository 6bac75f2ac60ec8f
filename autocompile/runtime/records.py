"""Read torch's own records of tensors from memory, to check whether the tensors are unchanged.

A program with its own copy of the weights needs each tensor's version, address and layout before every call. By then
none of this is in the processor's caches. From Python, the check takes some two microseconds per tensor, which is a
fifth of a call of 3 ms with 300 tensors. NumPy reads the words of all tensors at once, in the order of their addresses.

The positions of these words are not hard-coded: they are found by means of a tensor whose values torch reports. Where a
word cannot be found, or a tensor does not have this layout, Python does the check (`placed.py`).
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

_LOG = logging.getLogger("autocompile")
WORD_BYTES, _POINTER_BYTES = 8, ctypes.sizeof(ctypes.c_void_p)
# For more words, NumPy releases the interpreter's lock. If another thread is busy, it then waits 5 ms to get it back.
_AT_ONCE = 384
# The range of words in a tensor's record. Before it are the table of functions and the reference counts, which change.
_FIRST, _BEHIND = 2, 22
# The words that may be pointers, and how many words to search at their targets.
_POINTERS, _WITHIN = range(_FIRST, 8), 12
# Up to this number of dimensions, sizes and strides are in the record itself.
_MOST_DIMENSIONS = 5
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# The head of every Python object: its reference count and its type.
HEAD_WORDS = 2


class Unknown(Exception):
    """The records do not have the expected layout."""


class Words:
    """Words in memory with their present values. The caller must keep the objects that contain these words alive."""

    def __init__(self, addresses: Iterable[int]) -> None:
        places = np.unique(np.fromiter(addresses, dtype=np.int64) // WORD_BYTES)
        self._take: Any = None
        if len(places):
            first, last = int(places[0]), int(places[-1])
            span = ctypes.c_uint64 * (last - first + 1)
            self._take = np.ctypeslib.as_array(span.from_address(first * WORD_BYTES)).take
            places -= first
        parts = [places[start : start + _AT_ONCE] for start in range(0, len(places), _AT_ONCE)]
        self._seen = [(part, self._take(part).tobytes()) for part in parts]

    def hold(self) -> bool:
        """Return whether all words still have the same values."""
        take = self._take
        return all(take(part).tobytes() == seen for part, seen in self._seen)


@dataclass(frozen=True)
class _Layout:
    """The positions, in words, of storage, counter, sizes and strides in a tensor's record.

    `address` and `version` are the positions in the records of the storage and of the counter.
    """

    storage: int
    address: int
    counter: int
    version: int
    sizes: int
    strides: int

    def used(self, dimensions: int) -> list[int]:
        """Return the positions in the record that have a meaning for a tensor with this number of dimensions."""
        unused = {start + i for start in (self.sizes, self.strides) for i in range(dimensions, _MOST_DIMENSIONS)}
        return [position for position in range(_FIRST, _BEHIND) if position not in unused]


def words_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the addresses of all words that show whether a tensor was written to, was moved, or has another layout.

    They are valid as long as the tensor's Python object refers to the same record (`slot_of`). Raises Unknown if they
    are not found.
    """
    layout = _layout()
    if layout is None:
        raise Unknown("the layout of torch's records of tensors was not found")
    return [address for tensor in tensors for address in _words_of(tensor, layout)]


def _words_of(tensor: torch.Tensor, layout: _Layout) -> list[int]:
    if tensor.dim() > _MOST_DIMENSIONS:
        raise Unknown(f"sizes of {tensor.dim()} dimensions are not in the record")
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_complex():
        raise Unknown(f"a {type(tensor).__name__} of {tensor.dtype} and {tensor.layout} may keep data elsewhere")
    record = tensor._cdata  # noqa: SLF001
    words = [record + WORD_BYTES * i for i in layout.used(tensor.dim())]
    storage = tensor.untyped_storage()
    if _word(record + WORD_BYTES * layout.storage) != storage._cdata:  # noqa: SLF001
        raise Unknown("a tensor's record does not have its storage at the expected place")
    words.append(storage._cdata + WORD_BYTES * layout.address)  # noqa: SLF001
    if _word(words[-1]) != storage.data_ptr():
        raise Unknown("a storage's record does not have its address at the expected place")
    if not tensor.is_inference():
        words.append(_word(record + WORD_BYTES * layout.counter) + WORD_BYTES * layout.version)
        if _low(_word(words[-1])) != tensor._version:  # noqa: SLF001
            raise Unknown("a tensor's version is not at the expected place")
    return words


def slot_of(tensor: torch.Tensor) -> int:
    """Return the address of the `at::Tensor`, a pointer to the record, in a tensor's Python object. Raises Unknown."""
    words = type(tensor).__basicsize__ // WORD_BYTES
    held = (ctypes.c_void_p * words).from_address(id(tensor))
    for position in range(HEAD_WORDS, words):
        if held[position] == tensor._cdata:  # noqa: SLF001
            return id(tensor) + position * WORD_BYTES
    raise Unknown("the Python object of a tensor does not contain a pointer to its record")


@cache
def _layout() -> _Layout | None:
    """Return the layout, found by means of a new tensor, or None if it cannot be found."""
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not has_lock or (sys.platform, sys.byteorder) != ("linux", "little") or _POINTER_BYTES != WORD_BYTES:
        return None
    try:
        with torch.inference_mode(False):
            return _found(torch.zeros(3, 5, device="cpu"))
    except (OSError, StopIteration, AttributeError, RuntimeError) as fault:
        _LOG.debug("torch's records of tensors cannot be read; Python checks each tensor instead: %s", fault)
        return None


def _found(tensor: torch.Tensor) -> _Layout:
    """Find the layout. Raises StopIteration if something is not found, OSError if a guessed address is not readable."""
    record, storage = tensor._cdata, tensor.untyped_storage()  # noqa: SLF001
    # The operating system reads the memory, which fails for an invalid address. A direct read would crash the process.
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        words = _read(memory, record, _BEHIND)
        has_storage = next(i for i in _POINTERS if words[i] == storage._cdata)  # noqa: SLF001
        has_address = _read(memory, storage._cdata, _WITHIN).index(storage.data_ptr())  # noqa: SLF001
        has_sizes, has_strides = (_position_of(list(ask()), words) for ask in (tensor.size, tensor.stride))
        pointers = [i for i in _POINTERS if i != has_storage and _is_pointer(words[i])]
        before = {i: _read(memory, words[i], 4) for i in pointers}
        start = tensor._version  # noqa: SLF001
        tensor.add_(1)
        tensor.add_(1)
        after = {i: _read(memory, words[i], 4) for i in pointers}
        has_counter, has_version = next(
            (i, at)
            for i in pointers
            for at, (then, now) in enumerate(zip(before[i], after[i], strict=True))
            if (_low(then), _low(now)) == (start, start + 2)
        )
    except ValueError as fault:
        raise StopIteration from fault
    finally:
        os.close(memory)
    if has_strides != has_sizes + _MOST_DIMENSIONS:
        raise StopIteration
    return _Layout(has_storage, has_address, has_counter, has_version, has_sizes, has_strides)


def _position_of(part: list[int], words: list[int]) -> int:
    """Return where `part` begins in `words`. Raises StopIteration if this is nowhere."""
    return next(i for i in range(len(words)) if words[i : i + len(part)] == part)


def _read(memory: int, address: int, count: int) -> list[int]:
    return np.frombuffer(os.pread(memory, count * WORD_BYTES, address), dtype=np.uint64).tolist()  # type: ignore[no-any-return]


def _is_pointer(word: int) -> bool:
    return word % WORD_BYTES == 0 and 1 << 12 < word < 1 << 47


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _low(word: int) -> int:
    """Return the lower half of a word, because a version has 32 bits."""
    return word & 0xFFFFFFFF
