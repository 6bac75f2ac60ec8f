"""Compute attention on a CPU as separate matrix products and a softmax, instead of in torch's fused kernel.

The backward pass of the fused kernel is slow in bfloat16: it took 41% of a training step of a vision transformer (6
layers of 192, 65 tokens, 16 images) on two cores with AMX. With separate products, the same step is 1.4 times as fast
(torch 2.13).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.compiler.config as compiler

from autocompile.workload.process_setting import ProcessSetting

MATH = "math"
# The keys of the compiler's caches do not contain the setting (2.13), so a program could be found that was compiled
# with the other way.
_TAG = "attention=math"


class _Before(NamedTuple):
    flash: bool
    math: bool
    tag: str


def _forbid() -> _Before:
    """Forbid the fused kernel on CPUs, to which torch's settings for CUDA apply, too."""
    backends = torch.backends.cuda
    before = _Before(backends.flash_sdp_enabled(), backends.math_sdp_enabled(), compiler.cache_key_tag)  # type: ignore[no-untyped-call]
    _set(_Before(flash=False, math=True, tag=before.tag + _TAG))
    return before


def _set(settings: _Before) -> None:
    torch.backends.cuda.enable_flash_sdp(settings.flash)
    torch.backends.cuda.enable_math_sdp(settings.math)
    compiler.cache_key_tag = settings.tag


_AS_PRODUCTS = ProcessSetting(_forbid, _set)


def attention_as(attention: str) -> AbstractContextManager[None]:
    """Compute attention as a plan's `attention` says: as separate products (`math`), or as torch chooses.

    The choice is made in the forward pass, when a backward pass recomputes it, and when a program is compiled. The
    setting belongs to the process; it is restored when the last user has left the context.
    """
    return _AS_PRODUCTS if attention == MATH else nullcontext()


def attention_as_now() -> AbstractContextManager[None]:
    """Return a context for later in which attention is computed as it is now."""
    return attention_as(MATH if _AS_PRODUCTS.applies else "")
