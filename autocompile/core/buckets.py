"""Sizes that calls are filled up to, so that few shapes are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.serde import Record

_SMALLEST = 8


class PaddedAxis(Record, frozen=True):
    """An axis of an argument (the `leaf` among all flattened ones), and the value that it is filled with."""

    leaf: int
    axis: int
    fill: int


class CutAxis(Record, frozen=True):
    """An axis of an output (the `leaf` among all flattened ones) that is cut back to the size that was given."""

    leaf: int
    axis: int


class Buckets(Record, frozen=True):
    """Arguments filled up to the next of `sizes` along `padded`, which have one size together; outputs cut back.

    A call beyond the largest size is left as it is.
    """

    sizes: tuple[int, ...]
    padded: tuple[PaddedAxis, ...]
    cut: tuple[CutAxis, ...]

    def size_for(self, size: int) -> int:
        """The next of the sizes, or the given one beyond the largest."""
        return next((bucket for bucket in self.sizes if bucket >= size), size)


def bucket_sizes(seen: Sequence[int]) -> tuple[int, ...]:
    """Powers of two that hold the sizes seen: less than half of a call is filling, but for the smallest."""
    return tuple(sorted({max(_SMALLEST, 1 << (size - 1).bit_length()) for size in seen}))
