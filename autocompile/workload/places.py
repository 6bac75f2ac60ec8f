"""Where installed packages lie."""

from __future__ import annotations

_INSTALLED = ("site-packages", "dist-packages")


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package, by its path."""
    return any(place in file for place in _INSTALLED)
