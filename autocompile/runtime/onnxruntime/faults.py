"""What the model itself has that no program for ONNX Runtime can have."""

from __future__ import annotations

from autocompile.runtime.base import NotPackable


class Inexpressible(NotPackable):
    """Why the model cannot be converted, or run when it is, in one line."""
