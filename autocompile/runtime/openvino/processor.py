"""The properties of this processor by which OpenVINO chooses kernels. Imports neither torch nor the library."""

from __future__ import annotations

from functools import cache

from autocompile.processor import instructions

# The extensions by which it chooses kernels, the best first. A program is stored for the best available one.
_LEVELS = (
    "amx_fp16", "amx_bf16", "avx512_fp16", "avx512_bf16", "avx512_vnni", "avx512bw", "avx_ne_convert", "avx_vnni",
    "avx2", "avx", "sse4_1", "sve", "asimdhp", "asimd",
)  # fmt: skip
# For each reduced dtype, by its name in torch, the extensions of which one is enough to compute in it.
_COMPUTING_IN = {
    "bfloat16": ("avx512_bf16", "avx_ne_convert"),
    "float16": ("avx512_fp16", "avx_ne_convert", "asimdhp"),
}


@cache
def _has() -> frozenset[str]:
    return frozenset(instructions())


def level() -> str:
    """Return the processor's best extension of those by which kernels are chosen, or "" if none is known."""
    return next((name for name in _LEVELS if name in _has()), "")


def computes_in(dtype: str) -> bool:
    """Return whether the processor has instructions for a dtype, given by its name in torch."""
    return dtype not in _COMPUTING_IN or not _has().isdisjoint(_COMPUTING_IN[dtype])
