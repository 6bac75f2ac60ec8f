"""Plain values that are stored in JSON as Python literals."""

from __future__ import annotations

from typing import Any

_LITERALS = (type(None), bool, int, float, str, bytes)
_NOT_FINITE = ("nan", "inf", "-inf")


def is_literal(leaf: Any) -> bool:
    """Return whether `ast.literal_eval` restores the value from its `repr`."""
    return type(leaf) in _LITERALS and repr(leaf) not in _NOT_FINITE
