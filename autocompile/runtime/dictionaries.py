"""Check whether dictionaries were written to, by the version numbers that the interpreter keeps and torch exposes.

All dictionaries are checked before every call, when they are no longer in the processor's caches. If the interpreter
keeps the version in the dictionary object itself, then all versions are read at once.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from autocompile.runtime.records import HEAD_WORDS, WORD_BYTES, Words


class Written:
    """The state of dictionaries at this moment. The object keeps references to them."""

    def __init__(self, dictionaries: Sequence[dict[str, Any]]) -> None:
        self._dictionaries = list(dictionaries)
        self._latest = self._version()
        position = _position()
        self._words: Words | None = None
        if position is not None:
            words = Words(id(one) + WORD_BYTES * position for one in self._dictionaries)
            if self._version() == self._latest:  # nothing was written in the meantime
                self._words = words

    def is_newer(self) -> bool:
        """Return whether one of the dictionaries may have been written to since. False is certain."""
        if self._words is not None:
            return not self._words.hold()
        return self._version() != self._latest

    def _version(self) -> int:
        """Return the latest version among the dictionaries."""
        return max(map(_version, self._dictionaries), default=0)


_GUARDS: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)  # noqa: SLF001
_IS_TOLD = hasattr(_GUARDS, "dict_version")


def _counter() -> Callable[[dict[str, Any]], int]:
    """Return a function that reads the interpreter's version of a dictionary, which rises with every write to it.

    If this torch does not expose the version, the function returns a new number every time, so that everything is
    checked at every call.
    """
    ticks = itertools.count(1)
    return getattr(_GUARDS, "dict_version", lambda _dictionary: next(ticks))


_version = _counter()


@cache
def _position() -> int | None:
    """Return which word of a dictionary object is its version: the one that equals torch's answer after every write.

    Return None if there is none. From Python 3.12 on, torch counts writes itself, and its count could equal any word.
    """
    if sys.version_info >= (3, 12) or not _IS_TOLD:
        return None
    probe: dict[str, Any] = {}
    possible = set(range(HEAD_WORDS, dict.__basicsize__ // WORD_BYTES))
    for key in ("first", "second", "first", "second", "second"):
        probe[key] = object()
        words = (ctypes.c_uint64 * (dict.__basicsize__ // WORD_BYTES)).from_address(id(probe))
        told = _version(probe)
        possible = {position for position in possible if words[position] == told}
    return possible.pop() if len(possible) == 1 else None
