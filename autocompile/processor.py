"""Floor 1: the processor's name and features. Production code uses it too, so it imports nothing beyond the basics."""

from __future__ import annotations

import platform
from pathlib import Path

_FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd", "sve")


def cpu_features() -> tuple[str, ...]:
    """Return those vector extensions of this processor that determine which code a compiler emits."""
    words = _cpu_flags()
    return tuple(name for name in _FEATURES if name in words)


_INSTRUCTIONS = (
    "sse", "ssse", "popcnt", "aes", "pclmul", "avx", "f16c", "fma", "bmi", "abm", "movbe", "adx", "sha_ni", "gfni",
    "vaes", "vpclmul", "amx", "asimd", "sve", "sme2", "i8mm", "bf16", "fphp", "atomics",
)  # fmt: skip


def instructions() -> tuple[str, ...]:
    """Return all extensions that a compiler may use if it builds for this very processor, by the kernel's names."""
    return tuple(sorted(word for word in _cpu_flags() if word.startswith(_INSTRUCTIONS)))


def _cpu_flags() -> set[str]:
    """Return the flags that all processors of this machine have."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = [set(line.partition(":")[2].split()) for line in text.splitlines() if _lists_flags(line)]
    return set.intersection(*found) if found else set()


def _lists_flags(line: str) -> bool:
    return line.partition(":")[0].strip().lower() in ("flags", "features")


def cpu_model() -> str:
    """Return the processor's name, as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
