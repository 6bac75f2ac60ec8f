"""Query NVML for the GPU that torch uses."""

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
    """Return the device's busy share in 0..1 while `work` is repeated; None if NVML does not report it.

    NVML does not report it for MIG slices or without a driver. It reports the share of the last 1/6 to 1 s in which any
    kernel ran, so the first second is left out.
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
    """Watches the GPU that torch uses for throttling and other processes. Reports none if NVML does not answer."""

    def __init__(self) -> None:
        # In the unit of NVML's time stamps: microseconds since the epoch.
        self._began_us = int(time.time() * 1e6)
        try:
            pynvml.nvmlInit()
            self._device = _handle()
        except pynvml.NVMLError:
            self._device = None

    def throttled(self) -> str:
        """Return why the clocks are lowered right now, or ""."""
        if self._device is None:
            return ""
        try:
            reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._device)
        except pynvml.NVMLError:
            return ""
        return ", ".join(name for name, bit in THROTTLES.items() if reasons & bit)

    def other_processes(self) -> int:
        """Return how many other processes computed on the GPU since this watch began.

        Processes that only hold memory do not count. In a container, most drivers report the host's process ids
        (nvidia-docker 1483), so this process cannot be recognized among them. As this process computes too, one of the
        computing processes is then assumed to be this one.
        """
        if self._device is None:
            return 0
        try:
            running = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._device)}
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._device, self._began_us)
        except pynvml.NVMLError:  # no samples since then, a MIG slice, or a driver without this query
            return 0
        # Some drivers leave entries without a process, or with impossible figures.
        computing = {sample.pid for sample in samples if sample.pid and 0 < sample.smUtil <= _ALL}
        family = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
        if running & family:
            return len(computing - family)
        return max(0, len(computing) - 1)


def _handle() -> Any:
    """Return NVML's handle of torch's GPU, found by UUID. Raises NVMLError if NVML does not know the UUID.

    NVML ignores CUDA_VISIBLE_DEVICES, so indices do not match. Torch reports the UUID without NVML's prefix, which
    tells a GPU from a MIG slice, so both prefixes are tried.
    """
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{bare}")
    except pynvml.NVMLError:
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{bare}")
