"""Compute attention on a CPU as separate matrix products and a softmax, instead of in torch's fused kernel.

The backward pass of the fused kernel is slow in bfloat16: it took 41% of a training step of a vision transformer (6
layers of 192, 65 tokens, 16 images) on two cores with AMX. With separate products, the same step is 1.5 times as fast
(torch 2.13).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from autocompile.workload.process_setting import ProcessSetting

MATH = "math"


def _forbid() -> bool:
    """Forbid the fused kernel, and return whether it was allowed. The function sets this for CPUs, too."""
    before = bool(torch.backends.cuda.flash_sdp_enabled())  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_flash_sdp(False)
    return before


_AS_PRODUCTS = ProcessSetting(_forbid, torch.backends.cuda.enable_flash_sdp)


def attention_as(attention: str) -> AbstractContextManager[None]:
    """Compute attention as a plan's `attention` says: as separate products (`math`), or as torch chooses.

    The choice is made in the forward pass, and when a program is compiled. The setting belongs to the process; it is
    restored when the last user has left the context.
    """
    return _AS_PRODUCTS if attention == MATH else nullcontext()
