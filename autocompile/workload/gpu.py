"""The kinds of the GPUs in use, as a compiler distinguishes them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from autocompile.core.environment import GpuKind


def gpu_kind(index: int | None = None) -> GpuKind:
    """Return the kind of the GPU with this index, or of the current GPU if it is None."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    return GpuKind(properties.name, f"{properties.major}.{properties.minor}", properties.multi_processor_count)


def gpus_among(devices: Iterable[torch.device]) -> tuple[GpuKind, ...]:
    """Return the kinds of those devices that are NVIDIA GPUs, each device once, in order."""
    indices = dict.fromkeys(device.index for device in devices if device.type == "cuda")
    return tuple(map(gpu_kind, indices))
