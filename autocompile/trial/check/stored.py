"""Cases that are too large to be held in memory all at once: each is in a separate file and is read on access.

On a GPU, they would take memory from the measured step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, overload

import cloudpickle
import torch

T = TypeVar("T")


class Each(Sequence[T]):
    """A sequence of `count` items, each made on access. Items are not cached."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Each[T]: ...

    def __getitem__(self, index: int | slice) -> T | Each[T]:
        numbers = range(self._count)[index]
        if isinstance(numbers, int):
            return self._make(numbers)
        return Each(len(numbers), lambda number: self._make(numbers[number]))


def store(things: Sequence[T], path: Path) -> None:
    """Store each item in a file next to `path`."""
    for number, thing in enumerate(things):
        torch.save(thing, _file(path, number), pickle_module=cloudpickle)


def stored(count: int, path: Path) -> Each[T]:
    """Return the items that `store` stored. Each is loaded on the device that it was on."""
    return Each(count, lambda number: torch.load(_file(path, number), weights_only=False, mmap=True))


def _file(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
