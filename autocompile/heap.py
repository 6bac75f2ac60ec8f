"""The C library's heap, in the state that measurements are taken in and that a loaded module is served in.

glibc gives memory that was freed back to the kernel beyond a threshold, and maps large blocks one by one; both
thresholds rise by themselves as large blocks are freed, up to 32 and 64 MiB (mallopt(3), "dynamic mmap threshold").
Until they have risen, a model's temporaries are returned after each call and faulted in again at the next: measured,
7,388 page faults and three times the latency for an elementwise model of 1 MB tensors, or none, by how a process's heap
happens to lie. So the thresholds are set to where they rise to.
"""

from __future__ import annotations

import ctypes
import os
import platform

# From malloc.h; on 64-bit glibc the largest that its own adjustment comes to (DEFAULT_MMAP_THRESHOLD_MAX and twice it).
_THRESHOLDS = {"M_MMAP_THRESHOLD": (-3, 32 << 20), "M_TRIM_THRESHOLD": (-1, 64 << 20)}

# Whoever has set one of these, by GLIBC_TUNABLES or an environment variable, has said what the heap should keep.
_BY_USERS = ("trim_threshold", "mmap_threshold", "mmap_max", "top_pad")


def settle_heap() -> bool:
    """Have this process's heap keep what is freed; True where that is glibc's and nobody has set it otherwise."""
    if not _is_glibc() or _is_set_by_user():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(parameter, size) for parameter, size in _THRESHOLDS.values())


def heap_lines() -> list[str]:
    """The same as code to paste, on a machine where it can be had."""
    if not _is_glibc():
        return []
    return [
        "import ctypes",
        "",
        "# glibc's heap keeps what is freed between calls, as it did in the measurements (mallopt(3)).",
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
