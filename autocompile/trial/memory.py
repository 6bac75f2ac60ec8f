"""Measure the peak memory of a child process, and limit its memory."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch


def forget_peak(device_type: str) -> None:
    """Reset the peak of the GPU's memory. The peak of a process's resident memory cannot be reset."""
    if device_type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()


def peak_memory_bytes(device_type: str) -> int:
    """Return the peak memory in bytes.

    On a GPU this is the most allocated since `forget_peak`, including the memory pools of CUDA graphs. On a CPU it is
    the peak resident memory of the process since it started.
    """
    if device_type == "cuda":
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated()) + _kept_by_graphs()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _kept_by_graphs() -> int:
    """Return the GPU memory in the pools of CUDA graphs that counts as free but is used by their replays."""
    snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    pools = [part for part in snapshot if part["segment_pool_id"] != (0, 0)]
    return sum(part["total_size"] - part["allocated_size"] for part in pools)


def limit_memory(extra_bytes: int) -> None:
    """Let this process allocate at most `extra_bytes` more, so that it fails with an error before the machine does.

    Limits private writable memory (RLIMIT_DATA), which does not count mapped files and GPU address space.
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
