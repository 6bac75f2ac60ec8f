"""Buckets: sizes to which the inputs of calls are padded, so that few shapes are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.serde import Record

_SMALLEST = 8
# One less than the number of variants of a function that torch compiles before it gives up (`recompile_limit`).
_MOST = 7


class PaddedAxis(Record, frozen=True):
    """An axis of an argument that is padded, and the value to pad with. `leaf` counts positional, then keyword ones."""

    leaf: int
    axis: int
    fill: int


class CutAxis(Record, frozen=True):
    """An axis of an output (the `leaf` among all flattened ones) that is cut back to the size of the input."""

    leaf: int
    axis: int


class Buckets(Record, frozen=True):
    """How calls are padded: arguments up to the next of `sizes` along the `padded` axes; outputs are cut back.

    All `padded` axes have the same size in a call. Padding is proved for calls with this number of `positional`
    arguments, these `keywords`, and arguments of these `kinds` (a tensor's dtype and number of axes, or a constant).
    Other calls, and larger ones, are not padded. `outputs` is the number of leaves in the model's output.
    """

    sizes: tuple[int, ...]
    padded: tuple[PaddedAxis, ...]
    cut: tuple[CutAxis, ...]
    positional: int
    keywords: tuple[str, ...]
    kinds: tuple[str, ...]
    outputs: int

    def size_for(self, size: int) -> int:
        """Return the smallest bucket that holds `size`, or `size` itself if it is larger than all buckets."""
        return next((bucket for bucket in self.sizes if bucket >= size), size)


def bucket_sizes(seen: Sequence[int]) -> tuple[int, ...]:
    """Return powers of two that hold the sizes seen.

    The largest bucket is the largest size seen, because the model may not support larger ones.
    """
    largest = max(seen)
    powers = {max(_SMALLEST, 1 << (size - 1).bit_length()) for size in seen}
    return (*sorted(power for power in powers if power < largest)[1 - _MOST :], largest)
