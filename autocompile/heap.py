"""Settings of glibc's heap, the same for measurements and for loaded modules.

Beyond a threshold, glibc returns freed memory to the kernel, and it maps large blocks one by one. Both thresholds rise
automatically as large blocks are freed, up to 32 and 64 MiB (mallopt(3), "dynamic mmap threshold"). Until then, the
temporary tensors of a model may be returned to the kernel after each call, and cause page faults in the next call. An
elementwise model of 1 MB tensors was measured with 7,388 page faults and three times the latency in some processes, and
without page faults in others, depending on the layout of the heap. Therefore both thresholds are set to their final
values at once.
"""

from __future__ import annotations

import ctypes
import os
import platform

# From malloc.h. The values are the maximum of glibc's own adjustment on 64 bits: DEFAULT_MMAP_THRESHOLD_MAX, and twice
# that.
_THRESHOLDS = {"M_MMAP_THRESHOLD": (-3, 32 << 20), "M_TRIM_THRESHOLD": (-1, 64 << 20)}

# If the user has set one of these, by GLIBC_TUNABLES or an environment variable, the heap is not changed.
_BY_USERS = ("trim_threshold", "mmap_threshold", "mmap_max", "top_pad")


def settle_heap() -> bool:
    """Make this process's heap keep freed memory; return False without glibc, or if the user has set the thresholds."""
    if not _is_glibc() or _is_set_by_user():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(parameter, size) for parameter, size in _THRESHOLDS.values())


def heap_lines() -> list[str]:
    """Return the same as Python code for a snippet; empty without glibc."""
    if not _is_glibc():
        return []
    return [
        "import ctypes",
        "",
        "# glibc's heap keeps freed memory between calls, as it did in the measurements (mallopt(3)).",
        *(
            f"ctypes.CDLL(None).mallopt({parameter}, {size >> 20} << 20)  # {name}"
            for name, (parameter, size) in _THRESHOLDS.items()
        ),
        "",
    ]


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def _is_set_by_user() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return any(f"glibc.malloc.{name}" in tunables or f"MALLOC_{name.upper()}_" in os.environ for name in _BY_USERS)
