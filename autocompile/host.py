"""Floor 1: describes this machine and its load. No torch."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import psutil

from autocompile.compilers import cpp_compiler
from autocompile.core.environment import Environment
from autocompile.core.serde import Record
from autocompile.gpus import nvidia_gpus
from autocompile.processor import cpu_features, cpu_model


class Load(Record, frozen=True):
    """How busy the host was during a sample: shares of its total CPU time, in 0..1."""

    busy_share: float
    steal_share: float
    runnable_per_core: float


def environment() -> Environment:
    """Return a description of this machine; takes some tens of milliseconds."""
    gpus, driver = nvidia_gpus()
    return Environment(
        cpu=cpu_model(),
        architecture=platform.machine(),
        cpu_features=cpu_features(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        driver=driver,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=_version_of("torch"),
        autocompile=_version_of("torch-autocompile"),
        compiler=cpp_compiler(),
    )


def usable_cores() -> int:
    """Return how many CPUs this process may use: its affinity, limited by the cgroup's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(allowed, int(quota + 0.5)) if quota else allowed)


def available_memory() -> int:
    """Return how many bytes can still be allocated without swapping."""
    return int(psutil.virtual_memory().available)


def current_load(interval_s: float = 0.3) -> Load:
    """Measure the load of the host for `interval_s` seconds, in which the caller sleeps."""
    before = psutil.cpu_times()
    psutil.cpu_percent(interval=interval_s)
    after = psutil.cpu_times()
    total = max(sum(after) - sum(before), 1e-9)
    steal = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    idle = after.idle - before.idle + getattr(after, "iowait", 0.0) - getattr(before, "iowait", 0.0)
    return Load(
        busy_share=max(0.0, 1 - idle / total),
        steal_share=steal / total,
        runnable_per_core=psutil.getloadavg()[0] / (psutil.cpu_count() or 1),
    )


def user_cache_directory() -> Path:
    """Return the directory for results that belong to this machine, not to a run; set by `AUTOCOMPILE_CACHE_DIR`."""
    configured = os.environ.get("AUTOCOMPILE_CACHE_DIR")
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "autocompile"


def _cgroup_quota() -> float:
    """Return how many CPUs' worth of time the cgroup (version 2) grants, or 0 if it sets no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return 0.0 if quota == "max" else int(quota) / int(period)


def _version_of(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def can_fork() -> bool:
    """Return whether child processes can be forked from a process that has already imported torch."""
    return hasattr(os, "fork") and sys.platform.startswith("linux")
