"""How much memory a child took, and how much it may take."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch


def peak_memory_bytes(device_type: str) -> int:
    """The most that was allocated so far: on the GPU there, else the process's resident memory."""
    if device_type == "cuda":
        return int(torch.cuda.max_memory_allocated())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def limit_memory(extra_bytes: int) -> None:
    """Let this process allocate at most so many bytes more, so that it fails with an error and not the machine.

    Bounds private writable memory (RLIMIT_DATA), which leaves mapped files and GPU address space alone.
    """
    if extra_bytes <= 0 or not hasattr(resource, "RLIMIT_DATA"):
        return
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (OSError, IndexError, ValueError):
        return
    bound = pages * resource.getpagesize() + extra_bytes
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
