"""The limits of OpenVINO's integers: it computes in 32 bits, whatever the dtype. Does not import torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 2**31 - 1
# The functions behind the arrays' methods, which are written in Python.
_largest, _smallest = np.maximum.reduce, np.minimum.reduce


def is_within(array: NDArray[Any], most: int) -> bool:
    """Return whether no integer is larger than `most` or smaller than `-most`."""
    return not array.size or bool(_largest(array, None) <= most and _smallest(array, None) >= -most)


def too_large(path: str, most: int) -> str:
    """Return the message for a call whose argument at `path` has integers beyond `most`."""
    return f"argument {path} has values beyond {most:,}, and OpenVINO computes integers in 32 bits"
