"""Detect whether a DataLoader's dataset writes to itself, and whether it draws random numbers."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import random
import sys
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

# Larger datasets would take too long.
_LARGEST_BYTES = 512 << 20
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)


def digest_of(loader: DataLoader[Any]) -> str:
    """Return a digest of what the dataset and the collate function hold.

    Returns "" if it cannot be determined, for example because of open files or very large contents.
    """
    digest = _Digest()
    try:
        _Reader(digest, protocol=5).dump([_held(part) for part in (loader.dataset, loader.collate_fn)])
    except Exception:  # whatever a user's classes raise
        return ""
    return digest.made.hexdigest()


def random_states() -> list[str]:
    """Return the states of torch's, Python's and NumPy's generators, and of generators that are globals of modules."""
    named = {id(found): found for module in list(sys.modules.values()) for found in _generators_in(module)}
    found = [repr(random.getstate()), repr(np.random.get_state(legacy=False)), _text(torch.get_rng_state())]  # noqa: NPY002
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found += map(_text, torch.cuda.get_rng_state_all())
    return found + [_state_of(generator) for generator in named.values()]


def _held(part: Any) -> Any:
    """Return an object's attributes, because its class may pickle fewer, or the object itself if it has none."""
    return part if isinstance(part, FunctionType) or not hasattr(part, "__dict__") else (type(part), vars(part))


def _generators_in(module: Any) -> list[Any]:
    with contextlib.suppress(Exception):  # a module's entry may be any object
        return [found for found in list(vars(module).values()) if issubclass(type(found), _GENERATORS)]
    return []


def _state_of(generator: Any) -> str:
    if isinstance(generator, torch.Generator):
        return _text(generator.get_state())
    if isinstance(generator, random.SystemRandom):
        return ""
    if isinstance(generator, random.Random):
        return repr(generator.getstate())
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    return repr(generator.get_state(legacy=False))


def _text(state: torch.Tensor) -> str:
    return hashlib.blake2b(state.cpu().numpy().tobytes()).hexdigest()


class _Digest:
    """A file that keeps only a digest of what is written to it."""

    def __init__(self) -> None:
        self.made, self._bytes = hashlib.blake2b(), 0

    def write(self, data: Any) -> int:
        """Add to the digest. Raises ValueError if the contents are too large."""
        count = memoryview(data).nbytes
        self._bytes += count
        if self._bytes > _LARGEST_BYTES:
            raise ValueError("too much")
        self.made.update(data)
        return count


class _Reader(pickle.Pickler):
    """Pickles tensors by version, generators by state, and functions by identity and closure."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            holds = (obj.__closure__, obj.__defaults__, obj.__kwdefaults__, vars(obj))
            return (*_told(obj.__qualname__, id(obj)), holds)
        known = _known(obj)
        return NotImplemented if known is None else _told(type(obj).__qualname__, id(obj), *known)


def _known(obj: Any) -> list[Any] | None:
    """Return the values that show whether an object has changed, or None for an object that is pickled part by part."""
    if isinstance(obj, torch.Tensor):
        return [obj.data_ptr(), tuple(obj.shape), obj._version]  # noqa: SLF001
    if isinstance(obj, _GENERATORS):
        return [_state_of(obj)]
    if isinstance(obj, CellType):
        return _contents(obj)
    if isinstance(obj, np.ndarray):
        return None if obj.flags.writeable or obj.dtype.hasobject else [obj.shape]
    return [] if isinstance(obj, type | ModuleType) else None


def _contents(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # an empty cell
        return []


def _told(*what: Any) -> tuple[Any, ...]:
    return repr, what  # the result is never unpickled, so any function works that is pickled by its name
