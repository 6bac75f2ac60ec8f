"""Which GPUs are used, as a compiler knows them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from autocompile.core.environment import GpuKind


def gpu_kind(index: int | None = None) -> GpuKind:
    """Of the GPU of this index, which need not be the only one or the current one; None is the current one."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    return GpuKind(properties.name, f"{properties.major}.{properties.minor}", properties.multi_processor_count)


def gpus_among(devices: Iterable[torch.device]) -> tuple[GpuKind, ...]:
    """Of those devices that are NVIDIA GPUs, each once, in order."""
    indices = dict.fromkeys(device.index for device in devices if device.type == "cuda")
    return tuple(map(gpu_kind, indices))
