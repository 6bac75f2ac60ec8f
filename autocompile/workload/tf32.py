"""Compute float32 matrix products on a GPU in TF32 while it is requested."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

TF32 = "tf32"


class _InTF32(AbstractContextManager[None]):
    """See `products_in_tf32`. This is a class because a generator would be slower, and it is part of every call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count, self._before = 0, ""

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._before = _allow()

    def __exit__(self, *_fault: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                _restore(self._before)


_IN_TF32 = _InTF32()


def products_in_tf32() -> AbstractContextManager[None]:
    """Compute matrix products of float32 tensors in TF32 within the context: a mantissa of 10 bits, sums in float32.

    The setting belongs to the process, not to the thread. It is restored when the last user has left the context, so
    the matrix products of other threads are computed in TF32 meanwhile. Convolutions have a separate setting, which is
    TF32 by default. On a CPU, and on GPUs before compute capability 8.0, this changes nothing.
    """
    return _IN_TF32


def products_as(float32: str) -> AbstractContextManager[None]:
    """Compute them as a plan's `float32` says: in TF32, or as the process has it set."""
    return _IN_TF32 if float32 == TF32 else nullcontext()


def _allow() -> str:
    """Allow TF32 and return the previous setting."""
    matmul: Any = torch.backends.cuda.matmul
    before = str(matmul.fp32_precision)
    if before != TF32:
        # The older switch also sets the newer precision, and keeps torch's older functions working (2.13).
        matmul.allow_tf32 = True
    return before


def _restore(before: str) -> None:
    if before == TF32:
        return
    matmul: Any = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    if before != _IEEE:
        matmul.fp32_precision = before


# The precision that the older switch sets.
_IEEE = "ieee"
