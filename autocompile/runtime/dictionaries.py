"""Whether dictionaries were written to: the interpreter counts that, and torch tells.

All of them are asked about before every call, when they are cold in memory. Where the interpreter keeps its count in
the dictionary itself, all counts are read at once.
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
    """Dictionaries as they are now; they are kept."""

    def __init__(self, dictionaries: Sequence[dict[str, Any]]) -> None:
        self._dictionaries = list(dictionaries)
        self._latest = self._version()
        position = _position()
        self._words: Words | None = None
        if position is not None:
            words = Words(id(one) + WORD_BYTES * position for one in self._dictionaries)
            if self._version() == self._latest:  # nothing was written meanwhile
                self._words = words

    def is_newer(self) -> bool:
        """Whether one of them was written to since; yes for an answer says that one may have been."""
        if self._words is not None:
            return not self._words.hold()
        return self._version() != self._latest

    def _version(self) -> int:
        """The latest of theirs."""
        return max(map(_version, self._dictionaries), default=0)


_GUARDS: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)  # noqa: SLF001
_IS_TOLD = hasattr(_GUARDS, "dict_version")


def _counter() -> Callable[[dict[str, Any]], int]:
    """The interpreter's version of a dictionary, as torch tells it: a higher one after every write to it.

    Where this torch does not tell, each question has another answer, and everything is looked at every time.
    """
    ticks = itertools.count(1)
    return getattr(_GUARDS, "dict_version", lambda _dictionary: next(ticks))


_version = _counter()


@cache
def _position() -> int | None:
    """Which of a dictionary's words is its version: the one that is what torch tells, write after write.

    None where there is none. From 3.12 on torch counts by itself, and a count of its own may be like any word.
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
