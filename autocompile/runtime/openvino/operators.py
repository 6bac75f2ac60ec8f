"""Operators that the library cannot convert, written with others that it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _index_add(own: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1) -> Any:
    places = [None] * (dim % max(own.dim(), 1)) + [index]
    return _aten.index_put(own, places, source if alpha == 1 else source * alpha, accumulate=True)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {_aten.index_add.default: _index_add}
