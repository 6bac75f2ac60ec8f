"""Floor 1: what NVML reports about NVIDIA GPUs. A value that it does not report is unknown; the others are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pynvml

from autocompile.core.environment import Gpu
from autocompile.core.serde import Record

# The device file of NVIDIA's driver, and the one that gives WSL 2 access to the GPUs of the Windows host.
_DEVICE_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
_NAMELESS = "a GPU whose name NVML does not report"
# Reasons for which clocks are lower than the work would need. The power cap is not among them: under load it is normal.
THROTTLES = {
    "heat": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hardware slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "hardware heat": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "power brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}
# The environment variable from which CUDA reads the GPUs that a process may use.
VISIBLE = "CUDA_VISIBLE_DEVICES"
ComputeMode = Literal["", "shared", "one process", "none"]
_MODES: dict[int, ComputeMode] = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "shared",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "one process",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "one process",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "none",
}


class GpuState(Record, frozen=True):
    """The current state of a GPU.

    `is_sliced`: whether it is divided by MIG; `slices` are those that are visible here. `has_display`: whether it
    drives a display. `busy_share`: the share of at most the last second in which any kernel ran, null if unknown.
    `throttled`: why its clocks are lowered, or "". `open_to`: which processes may use it: all (`shared`),
    `one process`, or `none`; "" if unknown.
    """

    gpu: Gpu
    is_sliced: bool
    slices: tuple[Gpu, ...]
    has_display: bool
    busy_share: float | None
    throttled: str
    open_to: ComputeMode


def nvidia_gpus() -> tuple[tuple[Gpu, ...], str]:
    """Return the NVIDIA GPUs of this machine and the driver's version; empty if NVML is not available."""
    with _nvml() as answers:
        if not answers:
            return (), ""
        return tuple(map(_gpu, _devices())), told(pynvml.nvmlSystemGetDriverVersion) or ""


def has_device_file() -> bool:
    """Return whether there is a device file of an NVIDIA GPU. A container may have it without having NVML."""
    return any(path.exists() for path in _DEVICE_FILES)


def gpu_states() -> tuple[GpuState, ...]:
    """Return the state of each GPU; empty if NVML is not available."""
    with _nvml() as answers:
        return tuple(map(_state, _devices())) if answers else ()


def visible_names(states: Sequence[GpuState], visible: str | None) -> tuple[str, ...]:
    """Return the names of the GPUs that a process sees if `VISIBLE` has this value; None means that it is not set.

    For a GPU that is divided by MIG, these are its slices. As in CUDA, the list ends at the first entry that does not
    exist.
    """
    if visible is None:
        return tuple(gpu.name for state in states for gpu in _shown(state))
    names: list[str] = []
    for wanted in map(str.strip, visible.split(",")):
        found = _called(states, wanted)
        if not found:
            break
        names += [gpu.name for gpu in found]
    return tuple(names)


def _called(states: Sequence[GpuState], wanted: str) -> tuple[Gpu, ...]:
    """Return the GPU (or its slices) with this index, or whose UUID starts with this text."""
    if wanted.isascii() and wanted.isdigit():
        return _shown(states[int(wanted)]) if int(wanted) < len(states) else ()
    if not wanted:
        return ()
    whole = [_shown(state) for state in states if state.gpu.uuid.startswith(wanted)]
    return whole[0] if whole else tuple(s for state in states for s in state.slices if s.uuid.startswith(wanted))[:1]


def _shown(state: GpuState) -> tuple[Gpu, ...]:
    return state.slices if state.is_sliced else (state.gpu,)


def told(ask: Callable[..., Any], *about: Any) -> Any:
    """Return NVML's answer, or None if NVML denies, cannot answer or does not know the query."""
    try:
        return ask(*about)
    except pynvml.NVMLError:
        return None


@contextmanager
def _nvml() -> Iterator[bool]:
    """Initialize NVML for the duration of the context; yield whether it is available."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _devices() -> list[Any]:
    count = told(pynvml.nvmlDeviceGetCount) or 0
    handles = (told(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count))
    return [handle for handle in handles if handle is not None]


def _gpu(handle: Any) -> Gpu:
    return Gpu(
        name=told(pynvml.nvmlDeviceGetName, handle) or _NAMELESS,
        uuid=told(pynvml.nvmlDeviceGetUUID, handle) or "",
        memory_bytes=getattr(told(pynvml.nvmlDeviceGetMemoryInfo, handle), "total", None),
    )


def _state(handle: Any) -> GpuState:
    mig = told(pynvml.nvmlDeviceGetMigMode, handle)  # the current mode, and the mode after a reset
    busy = told(pynvml.nvmlDeviceGetUtilizationRates, handle)
    mode = told(pynvml.nvmlDeviceGetComputeMode, handle)
    reasons = told(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
    return GpuState(
        gpu=_gpu(handle),
        is_sliced=bool(mig and mig[0]),
        slices=tuple(_slices(handle)) if mig and mig[0] else (),
        has_display=bool(told(pynvml.nvmlDeviceGetDisplayActive, handle)),
        busy_share=None if busy is None else busy.gpu / 100,
        throttled=", ".join(name for name, bit in THROTTLES.items() if reasons & bit),
        open_to="" if mode is None else _MODES.get(mode, ""),
    )


def _slices(handle: Any) -> Iterator[Gpu]:
    """Yield the slices that this process may see; their indices may have gaps."""
    for index in range(told(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        one = told(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if one is not None:
            yield _gpu(one)
