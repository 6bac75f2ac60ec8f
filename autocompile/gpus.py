"""Floor 1: what NVML tells of NVIDIA GPUs. What it refuses to tell is unknown by itself, and no reason to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pynvml

from autocompile.core.environment import Gpu
from autocompile.core.serde import Record

# Of NVIDIA's driver; and of the one that brings GPUs of the host to Linux within Windows.
_DEVICE_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
_NAMELESS = "a GPU whose name NVML does not tell"
# Reasons that lower the clocks below what the work asked for. The power cap is none: under load it is the rule.
THROTTLES = {
    "heat": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hardware slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "hardware heat": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "power brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}
# What CUDA reads of which GPUs a process may use.
VISIBLE = "CUDA_VISIBLE_DEVICES"
ComputeMode = Literal["", "shared", "one process", "none"]
_MODES: dict[int, ComputeMode] = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "shared",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "one process",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "one process",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "none",
}


class GpuState(Record, frozen=True):
    """A GPU as it is now.

    `is_sliced`: it is cut by MIG, and `slices` are those that are seen here. `has_display`: a desktop draws on it.
    `busy_share`: the share of the last second or less in which any kernel ran, null where that is not told. `throttled`
    says why its clocks are lowered, or "". `open_to`: who may compute on it: all (`shared`), `one process`, `none`;
    "" where that is not told.
    """

    gpu: Gpu
    is_sliced: bool
    slices: tuple[Gpu, ...]
    has_display: bool
    busy_share: float | None
    throttled: str
    open_to: ComputeMode


def nvidia_gpus() -> tuple[tuple[Gpu, ...], str]:
    """The NVIDIA GPUs of this machine and the driver's version; nothing where NVML does not answer."""
    with _nvml() as answers:
        if not answers:
            return (), ""
        return tuple(map(_gpu, _devices())), told(pynvml.nvmlSystemGetDriverVersion) or ""


def has_device_file() -> bool:
    """Whether the system shows an NVIDIA GPU, as it does in a container that has CUDA's library and not NVML's."""
    return any(path.exists() for path in _DEVICE_FILES)


def gpu_states() -> tuple[GpuState, ...]:
    """The state of each; nothing where NVML does not answer."""
    with _nvml() as answers:
        return tuple(map(_state, _devices())) if answers else ()


def visible_names(states: Sequence[GpuState], visible: str | None) -> tuple[str, ...]:
    """The names of those that CUDA shows to a process for which `VISIBLE` has this value; None is where it is not set.

    A GPU that is cut shows its slices. As in CUDA, nothing counts from the first that is not there.
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
    """What is shown by this number, or by a UUID that begins so."""
    if wanted.isascii() and wanted.isdigit():
        return _shown(states[int(wanted)]) if int(wanted) < len(states) else ()
    if not wanted:
        return ()
    whole = [_shown(state) for state in states if state.gpu.uuid.startswith(wanted)]
    return whole[0] if whole else tuple(s for state in states for s in state.slices if s.uuid.startswith(wanted))[:1]


def _shown(state: GpuState) -> tuple[Gpu, ...]:
    return state.slices if state.is_sliced else (state.gpu,)


def told(ask: Callable[..., Any], *about: Any) -> Any:
    """What NVML answers, or None where it may not, cannot, or knows no such question."""
    try:
        return ask(*about)
    except pynvml.NVMLError:
        return None


@contextmanager
def _nvml() -> Iterator[bool]:
    """Whether NVML answers, for as long as it is asked."""
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
    mig = told(pynvml.nvmlDeviceGetMigMode, handle)  # what is in force, and what will be after a reset
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
    """Those that this process may see; their numbers have gaps."""
    for index in range(told(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        one = told(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if one is not None:
            yield _gpu(one)
