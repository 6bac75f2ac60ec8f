"""Float32 matrix products of a GPU in TF32, as long as somebody asks for it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

TF32 = "tf32"


class _InTF32(AbstractContextManager[None]):
    """See `products_in_tf32`. A class, as a generator would take longer, and it is part of every call."""

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
    """Have matrix products of float32 tensors run in TF32 meanwhile: a mantissa of 10 bits, sums in float32.

    The setting is the process's and not the thread's: it is put back when the last of those who asked is done, so what
    other threads multiply meanwhile is in TF32, too. Convolutions have a setting of their own, which is TF32 by
    default. On a CPU, and on GPUs before compute capability 8.0, it changes nothing.
    """
    return _IN_TF32


def products_as(float32: str) -> AbstractContextManager[None]:
    """Have them run as a plan's `float32` says meanwhile: in TF32, or as the process has it set."""
    return _IN_TF32 if float32 == TF32 else nullcontext()


def _allow() -> str:
    """Allow it; what was set before."""
    matmul: Any = torch.backends.cuda.matmul
    before = str(matmul.fp32_precision)
    if before != TF32:
        # The older switch sets the newer precision as well, and keeps torch's older functions answering (2.13).
        matmul.allow_tf32 = True
    return before


def _restore(before: str) -> None:
    if before == TF32:
        return
    matmul: Any = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    if before != _IEEE:
        matmul.fp32_precision = before


# What the older switch leaves behind.
_IEEE = "ieee"
