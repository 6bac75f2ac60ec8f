"""Tell whether a file belongs to an installed package."""

from __future__ import annotations

_INSTALLED = ("site-packages", "dist-packages")


def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package, judged by its path."""
    return any(place in file for place in _INSTALLED)
