"""A DataLoader on its way to another process, where it is tried with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from autocompile.core.units import format_bytes
from autocompile.workload import pickling, revival
from autocompile.workload.capture.loader import setting_of, twin

_FILE = "loader.pkl"
# What a dataset holds in memory travels through a file; beyond this it would take too long, and too much of the disk.
_LARGEST_BYTES = 256 << 20


def keep_loader(loader: DataLoader[Any], directory: Path) -> str:
    """Write a twin of `loader` into `directory`; why that cannot be done, or ""."""
    kept = twin(loader, setting_of(loader))
    try:
        _Measuring(_Counter()).dump(kept)
        with (directory / _FILE).open("wb") as file:
            pickling.Pickler(file).dump(kept)
    except _TooLarge:
        return f"its dataset holds more than {format_bytes(_LARGEST_BYTES)} in memory, too much to be copied"
    except Exception as fault:  # whatever a user's dataset raises
        (directory / _FILE).unlink(missing_ok=True)
        said = str(fault).partition("\n")[0] or type(fault).__name__
        return f"it cannot be sent to another process: {said}"
    return ""


def kept_loader(directory: Path) -> DataLoader[Any]:
    """What `keep_loader` wrote. Raises what the dataset's own classes raise there."""
    with (directory / _FILE).open("rb") as file:
        loader: DataLoader[Any] = revival.Unpickler(file).load()
    return loader


class _TooLarge(Exception):
    """Too many bytes."""


class _Counter:
    """Counts what is written, and keeps nothing."""

    def __init__(self) -> None:
        self._bytes = 0

    def write(self, data: bytes) -> int:
        self.add(len(data))
        return len(data)

    def add(self, count: int) -> None:
        """So many bytes more. Raises _TooLarge."""
        self._bytes += count
        if self._bytes > _LARGEST_BYTES:
            raise _TooLarge


class _Measuring(pickling.Pickler):
    """Tries the pickling, and counts tensors and arrays by their size without copying them."""

    def __init__(self, counter: _Counter) -> None:
        super().__init__(counter)
        self._counter = counter

    def persistent_id(self, obj: object) -> str | None:
        if type(obj) is torch.Tensor:
            self._counter.add(obj.untyped_storage().nbytes())
        elif isinstance(obj, np.ndarray) and not obj.dtype.hasobject:
            self._counter.add(obj.nbytes)
        else:
            return None
        return "data"
