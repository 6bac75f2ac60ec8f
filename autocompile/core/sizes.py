"""How far sizes may go beyond those that were seen."""

from __future__ import annotations

_TIMES = 4


def reach(largest: int) -> int:
    """The largest size to be ready for, where the largest seen was this: four times as much, to a power of two."""
    return 1 << (_TIMES * largest - 1).bit_length()
