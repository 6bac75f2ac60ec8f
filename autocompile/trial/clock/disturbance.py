"""Detect other activity on the host while a block was timed."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from autocompile.core.outcome import Contamination
from autocompile.trial.clock.nvml import GpuWatch

# A pair of blocks is repeated if other processes took more than this share of all CPU time. The kernel counts in ticks
# of 10 ms, so a smaller share of a pair of 100 ms would be a rounding error.
_PAIR_LIMIT = 0.15
# Over a whole timing the ticks average out, so a smaller share is enough to call a host noisy.
_TOTAL_LIMIT = 0.08
# A process that launches kernels on another device needs this many cores. Other processes on the remaining cores do not
# disturb it. Used on systems that do not report how long a process waited for a CPU.
_CORES_TO_LAUNCH = 2
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class CpuTimes:
    """Cumulative CPU seconds: of all CPUs, of their busy part, of steal, and of this process with its descendants.

    `at_s`: when they were read. `waited_s`: how long threads of this process were ready to run but had no CPU; None if
    the system does not report it.
    """

    total_s: float
    busy_s: float
    steal_s: float
    own_s: float
    switches: int
    at_s: float = 0.0
    waited_s: float | None = None


def cpu_times(descendants: Sequence[psutil.Process] = ()) -> CpuTimes:
    """Read the CPU times. This costs some 50 µs, and 10 µs more per thread, so it is done between blocks only."""
    host = psutil.cpu_times()
    own = os.times()
    steal = getattr(host, "steal", 0.0)
    total = sum(host) - getattr(host, "guest", 0.0) - getattr(host, "guest_nice", 0.0)
    idle = host.idle + getattr(host, "iowait", 0.0)
    return CpuTimes(
        total_s=total,
        busy_s=total - idle - steal,
        steal_s=steal,
        own_s=sum(own[:4]) + sum(map(_taken_by, descendants)),
        switches=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        at_s=time.perf_counter(),
        waited_s=_waited_s(),
    )


def _taken_by(process: psutil.Process) -> float:
    """Return the CPU seconds of a descendant and of the children it has waited for.

    When it ends, its seconds are included in its parent's.
    """
    try:
        return sum(process.cpu_times()[:4])
    except psutil.Error:
        return 0.0


def _waited_s() -> float | None:
    """Return the seconds that threads waited for a CPU, from the scheduler's statistics of each thread.

    The first two figures there are nanoseconds on a CPU, and nanoseconds ready to run without one.
    """
    waited: list[int] = []
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):  # a thread may have ended since
                waited.append(int((task / "schedstat").read_text().split()[1]))
    return sum(waited) / 1e9 if waited else None


class HostWatch:
    """Judges each pair of blocks, and the whole timing at the end.

    A timing on a CPU is disturbed by all CPU time that other processes take. A process that launches kernels on another
    device is disturbed only if it has to wait for a CPU.
    """

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._descendants = psutil.Process().children(recursive=True)
        self._first = self._last = cpu_times(self._descendants)
        self._blocks = self._dropped = 0
        self._gpu = GpuWatch() if device_type == "cuda" else None

    def begin(self) -> None:
        """Start watching a pair."""
        self._last = cpu_times(self._descendants)

    def disturbed(self) -> bool:
        """After a pair, return whether it should be repeated because other processes disturbed it."""
        now = cpu_times(self._descendants)
        self._blocks += 1
        bad = self._felt(self._last, now, _PAIR_LIMIT) or bool(self._gpu and self._gpu.throttled())
        self._dropped += bad
        return bad

    def verdict(self) -> Contamination:
        """Return the verdict on the whole timing."""
        now = cpu_times(self._descendants)
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
            noisy=self._felt(self._first, now, _TOTAL_LIMIT) or mostly_dropped or gpu_processes > 0,
            throttled=throttled,
            gpu_processes=gpu_processes,
            waited_share=None if self._device_type == "cpu" else _waited_share(self._first, now),
        )

    def _felt(self, before: CpuTimes, now: CpuTimes, limit: float) -> bool:
        """Whether other processes disturbed the timing for more than the share `limit` of the time."""
        others, steal = _shares(before, now)
        if steal > limit:
            return True
        if self._device_type == "cpu":
            return others > limit
        waited = _waited_share(before, now)
        return waited > limit if waited is not None else others > max(limit, _spare_share())


def _spare_share() -> float:
    """Return the share of all CPU time that others may take before a process that launches kernels lacks a core."""
    return 1 - _CORES_TO_LAUNCH / (os.cpu_count() or 1)


def _shares(before: CpuTimes, after: CpuTimes) -> tuple[float, float]:
    total = after.total_s - before.total_s
    if total <= 0:
        return 0.0, 0.0
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, others / total), (after.steal_s - before.steal_s) / total


def _waited_share(before: CpuTimes, after: CpuTimes) -> float | None:
    """Return the share of the time that threads of this process waited for a CPU; several threads add up."""
    if before.waited_s is None or after.waited_s is None or after.at_s <= before.at_s:
        return None
    return max(0.0, after.waited_s - before.waited_s) / (after.at_s - before.at_s)
