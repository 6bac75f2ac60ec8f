"""Cases that are too large to be held all at once: each in a file of its own, read when it is looked at.

On a GPU they would take memory from what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, overload

import cloudpickle
import torch

T = TypeVar("T")


class Each(Sequence[T]):
    """So many things, each made when it is looked at, and kept by whoever looks."""

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
    """Keep each in a file beside `path`."""
    for number, thing in enumerate(things):
        torch.save(thing, _file(path, number), pickle_module=cloudpickle)


def stored(count: int, path: Path) -> Each[T]:
    """What `store` kept; each is on the device that it was on."""
    return Each(count, lambda number: torch.load(_file(path, number), weights_only=False, mmap=True))


def _file(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
