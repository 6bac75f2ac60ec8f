"""NVML, for the GPU that torch uses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from statistics import mean
from typing import Any

import psutil
import pynvml
import torch

from autocompile.gpus import THROTTLES

_ALL = 100


def utilization(work: Callable[[], object], *, seconds: float) -> float | None:
    """The device's busy share in 0..1 while `work` is repeated, or None where NVML does not tell (MIG, no driver).

    NVML reports the share of its last 1/6 to 1 s in which any kernel ran, so the first second is left out.
    """
    try:
        pynvml.nvmlInit()
        handle = _handle()
    except pynvml.NVMLError:
        return None
    readings: list[float] = []
    stop = threading.Event()

    def poll() -> None:
        stop.wait(1.0)
        while not stop.is_set():
            try:
                readings.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
            except pynvml.NVMLError:
                return
            stop.wait(0.1)

    poller = threading.Thread(target=poll)
    poller.start()
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        work()
    stop.set()
    poller.join()
    return mean(readings) if readings else None


class GpuWatch:
    """Throttling and other processes on the GPU that torch uses; silent where NVML does not answer."""

    def __init__(self) -> None:
        # As NVML stamps its samples: microseconds since the epoch.
        self._began_us = int(time.time() * 1e6)
        try:
            pynvml.nvmlInit()
            self._device = _handle()
        except pynvml.NVMLError:
            self._device = None

    def throttled(self) -> str:
        """Why the clocks are lowered right now, or ""."""
        if self._device is None:
            return ""
        try:
            reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._device)
        except pynvml.NVMLError:
            return ""
        return ", ".join(name for name, bit in THROTTLES.items() if reasons & bit)

    def other_processes(self) -> int:
        """How many other processes computed on it since this watch began; those that only hold memory do not count.

        In a container most drivers tell the host's process numbers (nvidia-docker 1483), among which one's own is not
        to be recognized. This process computes, so then one of those that do is taken for it.
        """
        if self._device is None:
            return 0
        try:
            running = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._device)}
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._device, self._began_us)
        except pynvml.NVMLError:  # no samples since then, a MIG slice, or a driver that does not tell
            return 0
        # Some drivers leave entries of no process, or with figures beyond all.
        computing = {sample.pid for sample in samples if sample.pid and 0 < sample.smUtil <= _ALL}
        family = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
        if running & family:
            return len(computing - family)
        return max(0, len(computing) - 1)


def _handle() -> Any:
    """By UUID: NVML ignores CUDA_VISIBLE_DEVICES, so positions do not match. Raises NVMLError if it knows none such.

    Torch tells it without what NVML puts before it: whether it is a GPU's or that of a MIG slice.
    """
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
    except pynvml.NVMLError:
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
