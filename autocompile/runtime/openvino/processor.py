"""What of this processor OpenVINO goes by. No torch, and without the library."""

from __future__ import annotations

from functools import cache

from autocompile.processor import instructions

# The extensions that its kernels are chosen by, the best first: a program is stored for the best one that there is.
_LEVELS = (
    "amx_fp16", "amx_bf16", "avx512_fp16", "avx512_bf16", "avx512_vnni", "avx512bw", "avx_ne_convert", "avx_vnni",
    "avx2", "avx", "sse4_1", "sve", "asimdhp", "asimd",
)  # fmt: skip
# Any of these is enough to compute in a reduced dtype, by its name in torch.
_COMPUTING_IN = {
    "bfloat16": ("avx512_bf16", "avx_ne_convert"),
    "float16": ("avx512_fp16", "avx_ne_convert", "asimdhp"),
}


@cache
def _has() -> frozenset[str]:
    return frozenset(instructions())


def level() -> str:
    """The best extension that it has, of those that kernels are chosen by; "" if none is known."""
    return next((name for name in _LEVELS if name in _has()), "")


def computes_in(dtype: str) -> bool:
    """Whether it has instructions for a dtype, by its name in torch."""
    return dtype not in _COMPUTING_IN or not _has().isdisjoint(_COMPUTING_IN[dtype])
