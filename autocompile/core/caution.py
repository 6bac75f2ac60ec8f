"""Warnings that point at the caller's line, however deep in this package they are issued."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from pathlib import Path
from types import FrameType

# Files whose frames are skipped: this package's, and functools, which is between a cached property and its reader.
_BETWEEN = (str(Path(__file__).parents[1]) + os.sep, functools.__file__)


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning for the line outside of this package that led here."""
    frame = _outside(inspect.currentframe())
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    warnings.warn_explicit(
        message,
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _outside(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside of this package, or None if there is none."""
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame
