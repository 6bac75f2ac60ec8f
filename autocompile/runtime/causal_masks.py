"""Let torch's transformer layers use the mask that they are given, without asking whether it is a causal one.

`nn.TransformerEncoder` and `nn.TransformerDecoder` compare the values of a mask with those of a causal mask, to choose
an equivalent way without a mask. No program can depend on such a comparison, so they could not be exported (torch
2.13).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn.modules import transformer

_ASKING = "_detect_is_causal_mask"


@contextmanager
def masks_as_given() -> Iterator[None]:
    """Take a mask for a causal one only where the caller says so. The setting belongs to the process."""
    asking = getattr(transformer, _ASKING, None)
    if asking is None:
        yield
        return
    setattr(transformer, _ASKING, _as_said)
    try:
        yield
    finally:
        setattr(transformer, _ASKING, asking)


def _as_said(_mask: Any, is_causal: bool | None = None, _size: int | None = None) -> bool:
    return is_causal is True
