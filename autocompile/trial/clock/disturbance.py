"""What else the host did while a block was timed."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

import psutil

from autocompile.core.outcome import Contamination
from autocompile.trial.clock.nvml import GpuWatch

# A pair of blocks in which others took more than this share of all CPU time is repeated. The kernel
# counts in ticks of 10 ms, so a smaller share of a pair of 100 ms would be a rounding error.
_PAIR_LIMIT = 0.15
# Over a whole timing the ticks average out, and less is enough to call a host noisy.
_TOTAL_LIMIT = 0.08
# What launches kernels on another device needs so many cores; what others do on the rest it does not feel.
_CORES_TO_LAUNCH = 2


@dataclass(frozen=True)
class CpuTimes:
    """Cumulative seconds: all CPUs together, the busy part, steal, and this process's own."""

    total_s: float
    busy_s: float
    steal_s: float
    own_s: float
    switches: int


def cpu_times() -> CpuTimes:
    """Now; costs some 50 µs, so it is taken around blocks and never within."""
    host = psutil.cpu_times()
    own = os.times()
    steal = getattr(host, "steal", 0.0)
    total = sum(host) - getattr(host, "guest", 0.0) - getattr(host, "guest_nice", 0.0)
    idle = host.idle + getattr(host, "iowait", 0.0)
    return CpuTimes(
        total_s=total,
        busy_s=total - idle - steal,
        steal_s=steal,
        own_s=own.user + own.system,
        switches=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
    )


class HostWatch:
    """Judges pairs of blocks one by one, and all of them at the end."""

    def __init__(self, device_type: str) -> None:
        self._first = self._last = cpu_times()
        self._pair_limit, self._total_limit = _limits(device_type)
        self._blocks = self._dropped = 0
        self._gpu = GpuWatch() if device_type == "cuda" else None

    def begin(self) -> None:
        """Before a pair."""
        self._last = cpu_times()

    def disturbed(self) -> bool:
        """After a pair: whether others took so much of the CPU that it should be repeated."""
        now = cpu_times()
        others, steal = _shares(self._last, now)
        self._blocks += 1
        bad = others > self._pair_limit or steal > _PAIR_LIMIT or bool(self._gpu and self._gpu.throttled())
        self._dropped += bad
        return bad

    def verdict(self) -> Contamination:
        """Over all of the timing."""
        now = cpu_times()
        others, steal = _shares(self._first, now)
        throttled = self._gpu.throttled() if self._gpu else ""
        gpu_processes = self._gpu.other_processes() if self._gpu else 0
        mostly_dropped = self._dropped * 2 > self._blocks
        return Contamination(
            blocks=self._blocks,
            dropped=self._dropped,
            other_cpu_share=others,
            steal_share=steal,
            involuntary_switches=now.switches - self._first.switches,
            noisy=others > self._total_limit or steal > _TOTAL_LIMIT or mostly_dropped or gpu_processes > 0,
            throttled=throttled,
            gpu_processes=gpu_processes,
        )


def _limits(device_type: str) -> tuple[float, float]:
    """The share of all CPU time that others may take, in a pair and over all: on a CPU nearly none."""
    if device_type == "cpu":
        return _PAIR_LIMIT, _TOTAL_LIMIT
    free = 1 - _CORES_TO_LAUNCH / (os.cpu_count() or 1)
    return max(_PAIR_LIMIT, free), max(_TOTAL_LIMIT, free)


def _shares(before: CpuTimes, after: CpuTimes) -> tuple[float, float]:
    total = after.total_s - before.total_s
    if total <= 0:
        return 0.0, 0.0
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, others / total), (after.steal_s - before.steal_s) / total
