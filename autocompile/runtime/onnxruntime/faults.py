"""Properties of the model itself that no program for ONNX Runtime can have."""

from __future__ import annotations

from autocompile.runtime.base import NotPackable


class Inexpressible(NotPackable):
    """The model cannot be converted, or cannot be run after conversion; the message gives the reason in one line."""
