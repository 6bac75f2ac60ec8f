"""A program's files, after they were found to be those that were packed. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from autocompile.scratch import Scratch


class Files:
    """The files in `directory`, by their names there: to be read, or to be mapped from where they lie.

    `held`: what they held when they were checked, where somebody else could have changed them since; they are mapped
    from a copy then, which is this process's own.
    """

    def __init__(self, directory: Path, held: Mapping[str, bytes] | None = None) -> None:
        self._directory, self._held = directory, held

    def read(self, name: str) -> bytes:
        """What one of them holds. Raises OSError, or KeyError for one that was not checked."""
        return (self._directory / name).read_bytes() if self._held is None else self._held[name]

    def path(self, name: str) -> Path:
        """Where one of them, or a directory of them, lies as long as this object lives."""
        return self._place / name

    @cached_property
    def _place(self) -> Path:
        if self._held is None:
            return self._directory
        self._copy = Scratch()
        self._copy.put(self._held)
        return self._copy.path
