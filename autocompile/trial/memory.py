"""How much memory a child took, and how much it may take."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch


def forget_peak(device_type: str) -> None:
    """From here on, a new peak is looked for; of a process's resident memory there is only one."""
    if device_type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()


def peak_memory_bytes(device_type: str) -> int:
    """The most that was allocated: on the GPU since `forget_peak`, with what CUDA graphs keep for themselves.

    On a CPU it is the most that was resident of the process since it began.
    """
    if device_type == "cuda":
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated()) + _kept_by_graphs()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _kept_by_graphs() -> int:
    """Of the GPU's memory, what only a replay uses: it lies in their pools and counts as free."""
    snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    pools = [part for part in snapshot if part["segment_pool_id"] != (0, 0)]
    return sum(part["total_size"] - part["allocated_size"] for part in pools)


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
