"""NVML, for the GPU that torch uses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import mean
from typing import Any

import pynvml
import torch


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


def _handle() -> Any:
    """By UUID: NVML ignores CUDA_VISIBLE_DEVICES, so positions do not match."""
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
