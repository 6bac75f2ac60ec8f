"""Properties of the model itself that no program for ONNX Runtime can have."""

from __future__ import annotations

from autocompile.runtime.base import NotPackable
from autocompile.runtime.onnxruntime.kind import INEXPRESSIBLE


class Inexpressible(NotPackable):
    """The model cannot be converted, or cannot be run after conversion; the message gives the reason in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message, INEXPRESSIBLE)
