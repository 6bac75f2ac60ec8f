"""The range of sizes for which programs are compiled, beyond the sizes that were seen."""

from __future__ import annotations

_TIMES = 4


def reach(largest: int) -> int:
    """Return the largest size to support: four times the largest size seen, rounded up to a power of two."""
    return 1 << (_TIMES * largest - 1).bit_length()
