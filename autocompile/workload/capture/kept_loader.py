"""Send a DataLoader to another process, which tries it with other settings."""

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
# A dataset's contents are sent through a file. Beyond this size that takes too much time and disk space.
_LARGEST_BYTES = 256 << 20


def keep_loader(loader: DataLoader[Any], directory: Path) -> str:
    """Write a twin of `loader` into `directory`. Return why that is not possible, or ""."""
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
    """Return the loader that `keep_loader` wrote. Raises what the dataset's own classes raise when unpickled."""
    with (directory / _FILE).open("rb") as file:
        loader: DataLoader[Any] = revival.Unpickler(file).load()
    return loader


class _TooLarge(Exception):
    """The pickle has too many bytes."""


class _Counter:
    """Counts the bytes that are written, and discards them."""

    def __init__(self) -> None:
        self._bytes = 0

    def write(self, data: bytes) -> int:
        self.add(len(data))
        return len(data)

    def add(self, count: int) -> None:
        """Add to the number of bytes. Raises _TooLarge."""
        self._bytes += count
        if self._bytes > _LARGEST_BYTES:
            raise _TooLarge


class _Measuring(pickling.Pickler):
    """Tries to pickle something. Counts tensors and arrays by their size without copying them."""

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
