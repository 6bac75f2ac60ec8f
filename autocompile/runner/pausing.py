"""Pause a process and all processes it started, resume them, and measure their CPU time."""

from __future__ import annotations

import contextlib
import signal
import time

import psutil

# A process stops a moment after the signal, or later if it waits for a disk. Meanwhile it may have started further
# processes, so the tree is searched again.
_LONGEST_S, _GLANCE_S = 2.0, 0.002
_QUIET = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def can_pause() -> bool:
    """Whether this system can pause and resume a process."""
    return hasattr(signal, "SIGSTOP")


def pause_tree(pid: int) -> None:
    """Pause a process and all processes it started, and wait until none of them runs.

    A process that does not stop in time, such as one that waits for a disk, is left alone. If it disturbs a timing, the
    timing detects that.
    """
    until = time.monotonic() + _LONGEST_S
    while running := [process for process in _family(pid) if _runs(process)]:
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.suspend()
        if time.monotonic() > until:
            return
        time.sleep(_GLANCE_S)


def resume_tree(pid: int) -> None:
    """Resume a process and all processes it started, children before their parents."""
    for process in reversed(_family(pid)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.resume()


def worked_s(pid: int) -> float:
    """Return the seconds of CPU time used by a process and its descendants that still run or were waited for."""
    total = 0.0
    for process in _family(pid):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += sum(process.cpu_times()[:4])
    return total


def _family(pid: int) -> list[psutil.Process]:
    """Return the process and its descendants; the process comes first, as it starts most of the others."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in _QUIET
    except psutil.NoSuchProcess:
        return False
