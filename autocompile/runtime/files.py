"""A program's files, after a check that they are the files that were packed. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from autocompile.scratch import Scratch


class Files:
    """The files in `directory`, by name, to be read or to be mapped into memory from there.

    `held` is given if somebody else could change the files after the check: their contents at the check. The files are
    then mapped from a private copy of this process.
    """

    def __init__(self, directory: Path, held: Mapping[str, bytes] | None = None) -> None:
        self._directory, self._held = directory, held

    def read(self, name: str) -> bytes:
        """Return the contents of a file. Raises OSError, or KeyError for a file that was not checked."""
        return (self._directory / name).read_bytes() if self._held is None else self._held[name]

    def path(self, name: str) -> Path:
        """Return the path of a file or directory. The path is valid as long as this object exists."""
        return self._place / name

    @cached_property
    def _place(self) -> Path:
        if self._held is None:
            return self._directory
        self._copy = Scratch()
        self._copy.put(self._held)
        return self._copy.path
