"""On which device a model computes, and on which devices its tensors and those of its calls are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from autocompile.runtime.base import NotPackable
from autocompile.runtime.model_watch import registered_tensors
from autocompile.workload.axes import leaves_of
from autocompile.workload.samples import Sample

# GPU kernels are compiled for tensors whose address is a multiple of this number of bytes.
GPU_ALIGNMENT = 16


def computing_device(model: Any, sample: Sample) -> torch.device:
    """Return the device that does the work: the first device of the weights and the call's tensors that is not the CPU.

    The weights come first. A model on a GPU may have buffers on the CPU, and may take tensors from there.
    """
    return _foremost([*_of_weights(model), *_of_call(sample)])


def device_of_model(model: Any, device_type: str) -> torch.device:
    """Return the device of a model's weights, by the same rule.

    Without weights, it is the current device of this type.
    """
    devices = _of_weights(model)
    if devices:
        return _foremost(devices)
    return torch.device("cuda", torch.cuda.current_device()) if device_type == "cuda" else torch.device(device_type)


def gpu_index(model: Any, device_type: str) -> int | None:
    """Return the index of the GPU that a model's weights are on, or None if they are not on a GPU."""
    devices = _of_weights(model) if device_type == "cuda" else []
    return next((device.index for device in devices if device.type == "cuda"), None)


def check_one_gpu(model: Any, sample: Sample) -> None:
    """Raise NotPackable if tensors are on several GPUs, because a program runs on one."""
    gpus = sorted({str(device) for device in (*_of_weights(model), *_of_call(sample)) if device.type == "cuda"})
    if len(gpus) > 1:
        raise NotPackable(f"its tensors are on {' and '.join(gpus)}, but a program runs on one device", "model")


def is_misaligned(tensor: torch.Tensor) -> bool:
    """Return whether a GPU kernel that was compiled for aligned tensors would fail on this tensor."""
    return tensor.device.type == "cuda" and tensor.data_ptr() % GPU_ALIGNMENT != 0


def _of_weights(model: Any) -> list[torch.device]:
    return [tensor.device for _path, tensor in registered_tensors(model)]


def _of_call(sample: Sample) -> list[torch.device]:
    return [leaf.device for leaf in leaves_of(sample) if isinstance(leaf, torch.Tensor)]


def _foremost(devices: Iterable[torch.device]) -> torch.device:
    found = list(devices)
    return next((device for device in found if device.type != "cpu"), found[0] if found else torch.device("cpu"))
