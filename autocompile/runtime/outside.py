"""Detect other values of what a model's code reads outside of the model's modules, such as globals.

A compiled program has these values as constants. The check runs before every call, so it only compares objects by
identity, containers by the identity of their items, and dictionaries by the interpreter's count of writes. If one
differs, the code is searched again, and the texts of everything that it reads are compared.
"""

from __future__ import annotations

import gc
import operator
import types
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch

from autocompile.core.identity import Identity
from autocompile.runtime.dictionaries import Written
from autocompile.workload.identity.code import Code, code_of
from autocompile.workload.identity.plain import text_of
from autocompile.workload.identity.state import in_words, of_classes, outside_readers

_WITH_ITEMS = (list, set, deque)
# At most about this many elements of an array are compared before a call, evenly spaced.
_SAMPLE = 1024


class Outside:
    """What a model's code reads outside of its modules, as it was when this object was made.

    Code that `identity` records as the user's counts as such. Tensors are left out: they are compared like weights.
    """

    def __init__(self, model: Any, identity: Identity) -> None:
        self._model, self._known = model, identity.names
        code = code_of(model, identity.names)
        self._first = _Facts(code)
        # The names of attributes of classes in whose place a module may set its own; `Watch` looks for these.
        self.of_classes = of_classes(code)
        # What was seen last, and how it differs from the first, in one object, because threads may call at once.
        self._state = _Seen(code), ""

    def changed(self) -> str:
        """Return what has changed, as text, or ""."""
        seen, fault = self._state
        if not seen.holds():
            code = code_of(self._model, self._known)
            seen, fault = _Seen(code), _difference(self._first, _Facts(code))
            self._state = seen, fault
        return fault


class _Seen:
    """The objects that code reads now. The object keeps references to them.

    The members of classes change rarely, and there may be many, so the dictionaries of classes are watched as a whole.
    """

    def __init__(self, code: Code) -> None:
        readers: list[Any] = list(outside_readers(code).values())
        distinct = {_place(read): read for read in readers if not _is_of_a_class(read)}.values()
        self._objects = [(read, value) for read in distinct if not isinstance(value := read(), torch.Tensor)]
        values = [value for _read, value in self._objects]
        classes = [vars(holder) for holder in code.holders.values() if isinstance(holder, type)]
        of_classes = [one for proxy in classes for one in gc.get_referents(proxy) if isinstance(one, dict)]
        dictionaries = [*of_classes, *(one for one in values if isinstance(one, dict))]
        self._dictionaries = Written(list({id(one): one for one in dictionaries}.values()))
        containers = (partial(_has_items, one, tuple(one)) for one in values if isinstance(one, _WITH_ITEMS))
        arrays = (one for one in values if isinstance(one, np.ndarray) and not one.dtype.hasobject)
        self._contents = [*containers, *(partial(_has_sample, one, _sample(one)) for one in arrays)]

    def holds(self) -> bool:
        """Return whether the code still reads the same objects, with the same contents."""
        for read, value in self._objects:
            if read() is not value:
                return False
        for has_its_contents in self._contents:
            if not has_its_contents():
                return False
        return not self._dictionaries.is_newer()


class _Facts:
    """Texts of all plain values and digests of all functions, by what they are called in messages."""

    def __init__(self, code: Code) -> None:
        texts = {in_words(name): text_of(read()) for name, read in outside_readers(code).items()}
        self.read = {name: text for name, text in texts.items() if text is not None}
        self.values = {f"`{name}`": text for name, text in code.values.items()}
        self.functions = {f"the code of {name}": digest for name, digest in code.functions.items()}


def _difference(then: _Facts, now: _Facts) -> str:
    added = (f"{name} is {text}, and was not there" for name, text in now.read.items() if name not in then.read)
    other = (f"{name} has changed" for name, digest in then.functions.items() if now.functions.get(name) != digest)
    return next(chain(_moved(then.read, now.read), added, _moved(then.values, now.values), other), "")


def _moved(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name, text in then.items():
        if name not in now:
            yield f"{name} is not there, was {text}"
        elif now[name] != text:
            yield f"{name} is {now[name]}, was {text}"


def _has_items(container: Any, items: tuple[Any, ...]) -> bool:
    return len(container) == len(items) and all(map(operator.is_, container, items))


def _has_sample(array: np.ndarray[Any, Any], sample: bytes) -> bool:
    return _sample(array) == sample


def _sample(array: np.ndarray[Any, Any]) -> bytes:
    return array.flat[:: max(1, array.size // _SAMPLE)].tobytes()


def _is_of_a_class(read: Any) -> bool:
    return isinstance(_held(read), types.MappingProxyType)


def _held(read: Any) -> Any:
    """Return the dictionary from which a value is read, or the function that reads it."""
    return getattr(read.func, "__self__", read.func)


def _place(read: Any) -> tuple[Any, ...]:
    """Return what identifies the place that is read. Several functions may read one global."""
    return (id(_held(read)), *(argument if isinstance(argument, str) else id(argument) for argument in read.args))
