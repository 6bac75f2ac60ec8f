"""Convert plain values to short texts that are equal for equal values in every process."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import hashlib
import numbers
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_SIMPLE = (
    str, bytes, int, float, complex, bool, type(None), types.EllipsisType, range, slice, np.generic, numbers.Number,
    dt.date, dt.time, dt.timedelta, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


def _array(value: np.ndarray[Any, Any]) -> str:
    """Return dtype, shape and a digest of the elements. In an array of objects, only the simple ones count."""
    if value.dtype.hasobject:
        data = repr([item if isinstance(item, _SIMPLE) else type(item).__qualname__ for item in value.flat]).encode()
    else:
        # Without the methods of a subclass, of which that for masked arrays fails for `numpy.ma.masked`.
        data = np.asarray(value).tobytes() + np.asarray(getattr(value, "mask", ())).tobytes()
    return f"array {value.dtype} {value.shape} {hashlib.sha256(data).hexdigest()[:8]}"


_TEXTS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    (enum.Enum, lambda value: f"{type(value).__qualname__}.{value.name}"),
    (_SIMPLE, repr),
    (np.ndarray, _array),
    ((types.FunctionType, types.BuiltinFunctionType), lambda value: f"function {value.__qualname__}"),
    (type, lambda value: f"class {value.__qualname__}"),
)
_DEEPEST, _LONGEST = 4, 120


def text_of(value: Any) -> str | None:
    """Return the text of a plain value, or None for an object with attributes, whose attributes are its value.

    Plain values are numbers, text, NumPy's and torch's scalars and dtypes, arrays, enumerations, functions and classes
    by name, and containers of anything. A value that fails to print is known by its class. A long text ends in a digest
    of the whole.
    """
    text = _text(value, 0)
    if text is None or len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 20]}... ({hashlib.sha256(text.encode()).hexdigest()[:8]})"


def _text(value: Any, depth: int) -> str | None:
    for kind, told in _TEXTS:
        if isinstance(value, kind):
            return _printed(value, told)
    if isinstance(value, tuple | list | set | frozenset | dict | functools.partial):
        return _container(value, depth) if depth < _DEEPEST else "..."
    return _within(value, depth) if depth else _without_attributes(value)


def _printed(value: Any, told: Callable[[Any], str]) -> str:
    try:
        return told(value)
    except Exception:  # whatever a library's or a user's __repr__ raises
        return type(value).__qualname__


def _container(value: Any, depth: int) -> str:
    if isinstance(value, functools.partial):
        return f"partial {_text(value.func, depth + 1)} {_text([value.args, value.keywords], depth + 1)}"
    if isinstance(value, dict):
        pairs = ((_text(name, depth + 1), _text(item, depth + 1)) for name, item in value.items())
        return f"{{{', '.join(f'{name}: {item}' for name, item in pairs)}}}"
    texts = [str(_text(item, depth + 1)) for item in value]
    if isinstance(value, set | frozenset):
        # Sorted, because the order of strings in a set depends on a hash that differs in every process.
        return f"{{{', '.join(sorted(texts))}}}"
    return f"({', '.join(texts)})" if isinstance(value, tuple) else f"[{', '.join(texts)}]"


def _within(value: Any, depth: int) -> str:
    """Return the text of an object in a container: its class, and its attributes unless it is a tensor or a module."""
    name = type(value).__qualname__
    if not hasattr(value, "__dict__"):
        return _without_attributes(value) or name
    if isinstance(value, torch.Tensor | torch.nn.Module) or depth >= _DEEPEST:
        return name
    return f"{name} {_text(vars(value), depth + 1)}"


def _without_attributes(value: Any) -> str | None:
    """Return the text of an object written in C as it prints itself, unless that is only its address."""
    if hasattr(value, "__dict__") or isinstance(value, torch.Tensor | types.MethodType):
        return None
    text = _printed(value, repr)
    return None if " at 0x" in text else text
