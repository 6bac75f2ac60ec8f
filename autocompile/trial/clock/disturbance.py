"""What else the host did while a block was timed."""

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

# A pair of blocks in which others took more than this share of all CPU time is repeated. The kernel
# counts in ticks of 10 ms, so a smaller share of a pair of 100 ms would be a rounding error.
_PAIR_LIMIT = 0.15
# Over a whole timing the ticks average out, and less is enough to call a host noisy.
_TOTAL_LIMIT = 0.08
# What launches kernels on another device needs so many cores; what others do on the rest it does not feel. For systems
# that do not tell what a process feels.
_CORES_TO_LAUNCH = 2
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class CpuTimes:
    """Cumulative seconds: all CPUs together, the busy part, steal, and what this process and its descendants took.

    `at_s` is when it was taken; `waited_s` is for how long threads of this process were ready to run and had no CPU,
    None where the system does not tell.
    """

    total_s: float
    busy_s: float
    steal_s: float
    own_s: float
    switches: int
    at_s: float = 0.0
    waited_s: float | None = None


def cpu_times(descendants: Sequence[psutil.Process] = ()) -> CpuTimes:
    """Now; costs some 50 µs and 10 more for each thread, so it is taken around blocks and never within."""
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
    """Seconds that a descendant and those that it has waited for took; once it ends, they are in its parent's."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.Error:
        return 0.0


def _waited_s() -> float | None:
    """From the scheduler's account of each thread: nanoseconds on a CPU, and ready without one."""
    waited: list[int] = []
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):  # a thread may have ended since
                waited.append(int((task / "schedstat").read_text().split()[1]))
    return sum(waited) / 1e9 if waited else None


class HostWatch:
    """Judges pairs of blocks one by one, and all of them at the end.

    Timings on a CPU are disturbed by whatever others take of it. What launches kernels for another device is disturbed
    only where it is kept from a CPU itself.
    """

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._descendants = psutil.Process().children(recursive=True)
        self._first = self._last = cpu_times(self._descendants)
        self._blocks = self._dropped = 0
        self._gpu = GpuWatch() if device_type == "cuda" else None

    def begin(self) -> None:
        """Before a pair."""
        self._last = cpu_times(self._descendants)

    def disturbed(self) -> bool:
        """After a pair: whether it should be repeated, as others took or held up so much of the CPU."""
        now = cpu_times(self._descendants)
        self._blocks += 1
        bad = self._felt(self._last, now, _PAIR_LIMIT) or bool(self._gpu and self._gpu.throttled())
        self._dropped += bad
        return bad

    def verdict(self) -> Contamination:
        """Over all of the timing."""
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
        """Whether others disturbed what ran meanwhile by more than a share of the time."""
        others, steal = _shares(before, now)
        if steal > limit:
            return True
        if self._device_type == "cpu":
            return others > limit
        waited = _waited_share(before, now)
        return waited > limit if waited is not None else others > max(limit, _spare_share())


def _spare_share() -> float:
    """The share of all CPU time that others may take before what launches kernels has no core for itself."""
    return 1 - _CORES_TO_LAUNCH / (os.cpu_count() or 1)


def _shares(before: CpuTimes, after: CpuTimes) -> tuple[float, float]:
    total = after.total_s - before.total_s
    if total <= 0:
        return 0.0, 0.0
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, others / total), (after.steal_s - before.steal_s) / total


def _waited_share(before: CpuTimes, after: CpuTimes) -> float | None:
    """Of the time, for which threads of this process were ready and had no CPU; several at once add up."""
    if before.waited_s is None or after.waited_s is None or after.at_s <= before.at_s:
        return None
    return max(0.0, after.waited_s - before.waited_s) / (after.at_s - before.at_s)
