"""Compute float32 matrix products on a GPU in TF32 while it is requested."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from autocompile.workload.process_setting import ProcessSetting

TF32 = "tf32"
# The precision that the older switch sets.
_IEEE = "ieee"


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


_IN_TF32 = ProcessSetting(_allow, _restore)


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
