"""Detect other values of what a model's code reads outside of the model's modules, such as globals.

A compiled program has these values as constants. The check runs before every call, so it compares objects first, and
their texts only if the objects differ.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autocompile.core.identity import Identity
from autocompile.workload.identity.bytecode import digest_of
from autocompile.workload.identity.code import code_of
from autocompile.workload.identity.plain import text_of
from autocompile.workload.identity.state import in_words, outside_readers

_CONTAINERS = (list, tuple, set, frozenset, dict)


@dataclass(slots=True)
class _Value:
    """A value as it was at `first`, with its text then, and as it was last `seen`: equal, but maybe another object.

    `items` are those of a container, None if it is none.
    """

    name: str
    read: Callable[[], Any]
    first: Any
    text: str
    seen: Any
    items: tuple[Any, ...] | None


class Outside:
    """The plain values and the functions that a model's code reads, as they were when this object was made.

    Code that `identity` records as the user's counts as such.
    """

    def __init__(self, model: Any, identity: Identity) -> None:
        readers = outside_readers(code_of(model, {*identity.code, *identity.values}))
        distinct = {_place(read): (name, read) for name, read in readers.items()}
        found = ((name, read, read()) for name, read in distinct.values())
        self._values = [
            _Value(name, read, value, text, value, _items(value))
            for name, read, value in found
            if (text := text_of(value)) is not None
        ]

    def changed(self) -> str:
        """Return what has changed, as text, or ""."""
        for value in self._values:
            now = value.read()
            if (now is not value.seen or value.items is not None) and (words := _moved(value, now)):
                return words
        return ""


def _moved(value: _Value, now: Any) -> str:
    """Return the difference in words, or "" after noting an equal value of another object."""
    items = _items(now)
    if now is value.seen and _are_the_same(items, value.items):
        return ""
    if isinstance(now, types.FunctionType) and isinstance(value.first, types.FunctionType):
        if digest_of(now) != digest_of(value.first):
            return f"{in_words(value.name)} is another function"
    elif (text := text_of(now)) != value.text:
        return f"{in_words(value.name)} is {text}, was {value.text}"
    value.seen, value.items = now, items
    return ""


def _items(value: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, _CONTAINERS):
        return None
    return (*value.keys(), *value.values()) if isinstance(value, dict) else tuple(value)


def _are_the_same(items: tuple[Any, ...] | None, others: tuple[Any, ...] | None) -> bool:
    if items is None or others is None:
        return items is others
    return len(items) == len(others) and all(map(operator.is_, items, others))


def _place(read: Any) -> tuple[Any, ...]:
    """Return what identifies the place that is read. Several functions may read one global."""
    return (id(getattr(read.func, "__self__", read.func)), *map(_argument, read.args))


def _argument(argument: Any) -> Any:
    return argument if isinstance(argument, str) else id(argument)
