"""Torch's own records of tensors, read from memory: whether they are as they were.

A tensor's version, where it lies and how it is laid out are asked before every call that a program answers from weights
of its own. All of that is cold in memory by then, and takes Python some two microseconds a tensor, which is a fifth of
a call where there are 300 tensors and 3 ms. NumPy reads the words of all of them at once, in the order in which they
lie.

Where the words are is found out, not known: on a tensor whose figures torch tells. What cannot be found, or does not
hold for a tensor, is left to Python (`placed.py`).
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
# For more NumPy lets go of the interpreter's lock, for which it then waits 5 ms beside a busy thread.
_AT_ONCE = 384
# Of a tensor's record: what comes before is its table of functions and its counts of references, which change.
_FIRST, _BEHIND = 2, 22
# Where in it a pointer may be, and how far in what it points to something is looked for.
_POINTERS, _WITHIN = range(_FIRST, 8), 12
# So many sizes and strides are in the record itself.
_MOST_DIMENSIONS = 5
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Of every Python object: its count of references, and its type.
HEAD_WORDS = 2


class Unknown(Exception):
    """Records here are not what they are taken for."""


class Words:
    """Words in memory, as they are now. Whoever asks keeps what they are part of, so that nothing else lies there."""

    def __init__(self, addresses: Iterable[int]) -> None:
        places = sorted({address // WORD_BYTES for address in addresses})
        self._take: Any = None
        if places:
            span = ctypes.c_uint64 * (places[-1] - places[0] + 1)
            self._take = np.ctypeslib.as_array(span.from_address(places[0] * WORD_BYTES)).take
        relative = np.array(places) - places[0] if places else np.array([], dtype=np.int64)
        parts = [relative[start : start + _AT_ONCE] for start in range(0, len(places), _AT_ONCE)]
        self._seen = [(part, self._take(part).tobytes()) for part in parts]

    def hold(self) -> bool:
        """Whether all of them are the same still."""
        take = self._take
        return all(take(part).tobytes() == seen for part, seen in self._seen)


@dataclass(frozen=True)
class _Layout:
    """Where a tensor's record has its storage and its counter, and these have the address and the version: in words."""

    storage: int
    address: int
    counter: int
    version: int


def words_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The addresses of all words that tell whether one was written to, lies elsewhere, or is laid out otherwise.

    They are its own as long as its Python object refers to the same record (`slot_of`). Raises Unknown where they are
    not found.
    """
    layout = _layout()
    if layout is None:
        raise Unknown("where torch keeps what it knows of a tensor was not found")
    return [address for tensor in tensors for address in _words_of(tensor, layout)]


def _words_of(tensor: torch.Tensor, layout: _Layout) -> list[int]:
    if tensor.dim() > _MOST_DIMENSIONS:
        raise Unknown(f"sizes of {tensor.dim()} dimensions lie elsewhere")
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_complex():
        raise Unknown(f"a {type(tensor).__name__} of {tensor.dtype} and {tensor.layout} may keep something elsewhere")
    record = tensor._cdata  # noqa: SLF001
    words = [record + WORD_BYTES * i for i in range(_FIRST, _BEHIND)]
    storage = tensor.untyped_storage()
    if _word(record + WORD_BYTES * layout.storage) != storage._cdata:  # noqa: SLF001
        raise Unknown("a tensor's record does not have its storage where others have it")
    words.append(storage._cdata + WORD_BYTES * layout.address)  # noqa: SLF001
    if _word(words[-1]) != storage.data_ptr():
        raise Unknown("a storage's record does not have its address where others have it")
    if not tensor.is_inference():
        words.append(_word(record + WORD_BYTES * layout.counter) + WORD_BYTES * layout.version)
        if _low(_word(words[-1])) != tensor._version:  # noqa: SLF001
            raise Unknown("a tensor's version is not where others have it")
    return words


def slot_of(tensor: torch.Tensor) -> int:
    """The address of the `at::Tensor` in a tensor's Python object: one pointer, to its record. Raises Unknown."""
    words = type(tensor).__basicsize__ // WORD_BYTES
    held = (ctypes.c_void_p * words).from_address(id(tensor))
    for position in range(HEAD_WORDS, words):
        if held[position] == tensor._cdata:  # noqa: SLF001
            return id(tensor) + position * WORD_BYTES
    raise Unknown("their Python objects do not hold them")


@cache
def _layout() -> _Layout | None:
    """Found on a tensor of its own; None where it is not."""
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not has_lock or (sys.platform, sys.byteorder) != ("linux", "little") or _POINTER_BYTES != WORD_BYTES:
        return None
    try:
        with torch.inference_mode(False):
            return _found(torch.zeros(3, 5, device="cpu"))
    except (OSError, StopIteration, AttributeError, RuntimeError) as fault:
        _LOG.debug("torch's records of tensors are not read, and Python asks about each: %s", fault)
        return None


def _found(tensor: torch.Tensor) -> _Layout:
    """Raises StopIteration where something is not found, OSError where a guess leads nowhere."""
    record, storage = tensor._cdata, tensor.untyped_storage()  # noqa: SLF001
    # The system reads for it, which fails where there is no memory; to read there oneself would end the process.
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        words = _read(memory, record, _BEHIND)
        has_storage = next(i for i in _POINTERS if words[i] == storage._cdata)  # noqa: SLF001
        has_address = _read(memory, storage._cdata, _WITHIN).index(storage.data_ptr())  # noqa: SLF001
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
    return _Layout(has_storage, has_address, has_counter, has_version)


def _read(memory: int, address: int, count: int) -> list[int]:
    return np.frombuffer(os.pread(memory, count * WORD_BYTES, address), dtype=np.uint64).tolist()  # type: ignore[no-any-return]


def _is_pointer(word: int) -> bool:
    return word % WORD_BYTES == 0 and 1 << 12 < word < 1 << 47


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _low(word: int) -> int:
    """Its lower half, as a version has 32 bits."""
    return word & 0xFFFFFFFF
