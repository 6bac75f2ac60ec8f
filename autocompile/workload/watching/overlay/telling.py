"""Convert errors from the scratch directory to errors for the paths that the script named."""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import Any

from autocompile.workload.watching.overlay.view import View, exists, parent_of


class Told:
    """A context in which an OSError names the path that the script gave, and has the error code of that path."""

    __slots__ = ("_given", "_second", "_view")

    def __init__(self, view: View, given: Any, second: Any = None) -> None:
        self._view, self._given, self._second = view, given, second

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(problem, OSError) and problem.errno:
            number, words = problem.errno, problem.strerror
            if number == errno.ENOTDIR and self._second is None and self._lies_in_directory():
                number, words = errno.ENOENT, os.strerror(errno.ENOENT)
            raise OSError(number, words, self._given, None, self._second) from None

    def _lies_in_directory(self) -> bool:
        """Return whether the error comes only from a file of the user's where the script made a directory."""
        if isinstance(self._given, int):
            return False
        try:
            resolved, here = self._view.located(self._view.absolute(self._given), follow=False)
        except OSError:
            return False
        return here == resolved and not exists(here) and self._view.is_changed(parent_of(resolved))
