"""Pausing a process with all that it started, letting it go on, and seeing whether it works."""

from __future__ import annotations

import contextlib
import signal
import time

import psutil

# A process stops a moment after it was told to, later if it waits for a disk; who has started another meanwhile is
# looked for again.
_LONGEST_S, _GLANCE_S = 2.0, 0.002
_QUIET = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def can_pause() -> bool:
    """Whether this system can stop a process and let it go on."""
    return hasattr(signal, "SIGSTOP")


def pause_tree(pid: int) -> None:
    """Stop a process and all that it started, and wait until none of them runs.

    What does not stop in time (a process that waits for a disk) is left to be seen by whoever is timed beside it.
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
    """Let a process and all that it started go on, those that others wait for first."""
    for process in reversed(_family(pid)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.resume()


def worked_s(pid: int) -> float:
    """Seconds of CPU time that a process took, with all that it started, as far as they run or were waited for."""
    total = 0.0
    for process in _family(pid):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += sum(process.cpu_times()[:4])
    return total


def _family(pid: int) -> list[psutil.Process]:
    """The process first, which starts most of the others."""
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
