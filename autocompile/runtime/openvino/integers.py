"""Integers that OpenVINO computes with: it has 32 bits for each, whatever they are stored in. No torch."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

MOST = 2**31 - 1


def is_within(array: NDArray[Any], most: int) -> bool:
    """Whether no integer is larger than `most`, or smaller than its negative."""
    return not array.size or bool(array.max() <= most and array.min() >= -most)


def too_large(path: str, most: int) -> str:
    """Why a call is none for it, whose argument at `path` has integers larger than `most`."""
    return f"argument {path} has values beyond {most:,}, and OpenVINO computes integers in 32 bits"
