"""Sizes that calls are filled up to, so that few shapes are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.serde import Record

_SMALLEST = 8
# One less than what torch compiles of one function before it gives up (`recompile_limit`).
_MOST = 7


class PaddedAxis(Record, frozen=True):
    """An axis of an argument (the `leaf` among positional ones, then keywords), and the value it is filled with."""

    leaf: int
    axis: int
    fill: int


class CutAxis(Record, frozen=True):
    """An axis of an output (the `leaf` among all flattened ones) that is cut back to the size that was given."""

    leaf: int
    axis: int


class Buckets(Record, frozen=True):
    """Arguments filled up to the next of `sizes` along `padded`, which have one size together; outputs cut back.

    That is for calls with so many `positional` arguments, these `keywords`, and arguments of these `kinds` (a tensor's
    dtype and number of axes, or a constant), for which it is proved; others, and larger ones, are left as they are.
    `outputs` is how many leaves the model's output has.
    """

    sizes: tuple[int, ...]
    padded: tuple[PaddedAxis, ...]
    cut: tuple[CutAxis, ...]
    positional: int
    keywords: tuple[str, ...]
    kinds: tuple[str, ...]
    outputs: int

    def size_for(self, size: int) -> int:
        """The next of the sizes, or the given one beyond the largest."""
        return next((bucket for bucket in self.sizes if bucket >= size), size)


def bucket_sizes(seen: Sequence[int]) -> tuple[int, ...]:
    """Powers of two that hold the sizes seen, but the largest seen itself, beyond which the model may not go."""
    largest = max(seen)
    powers = {max(_SMALLEST, 1 << (size - 1).bit_length()) for size in seen}
    return (*sorted(power for power in powers if power < largest)[1 - _MOST :], largest)
