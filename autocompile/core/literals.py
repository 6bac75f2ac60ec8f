"""Plain values that JSON can hold as Python writes them."""

from __future__ import annotations

from typing import Any

_LITERALS = (type(None), bool, int, float, str, bytes)
_NOT_FINITE = ("nan", "inf", "-inf")


def is_literal(leaf: Any) -> bool:
    """Whether `ast.literal_eval` of its `repr` gives it back."""
    return type(leaf) in _LITERALS and repr(leaf) not in _NOT_FINITE
