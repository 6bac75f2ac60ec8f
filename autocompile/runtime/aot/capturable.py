"""Check whether a program's calls can be captured as a CUDA graph, which replays fixed addresses and sizes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autocompile.runtime.aot.package import Weight
from autocompile.runtime.base import NotPackable
from autocompile.workload.axes import FreeAxis, leaves_of
from autocompile.workload.samples import Sample

_ON_CPU = "a CUDA graph cannot read tensors on the CPU, and {} is on the CPU; move it to the GPU"


def check_calls(sample: Sample, axes: Sequence[FreeAxis]) -> None:
    """Raise NotPackable if a CUDA graph cannot serve calls like `sample`."""
    tensors = [leaf for leaf in leaves_of(sample) if isinstance(leaf, torch.Tensor)]
    if axes:
        raise NotPackable("a CUDA graph has the fixed sizes of one call, but the calls differ in size", "capture")
    if not tensors:
        raise NotPackable("a CUDA graph needs a tensor among the arguments, and there is none", "capture")
    if any(tensor.device.type == "cpu" for tensor in tensors):
        raise NotPackable(_ON_CPU.format("an argument"), "capture")


def check_weights(weights: Sequence[Weight]) -> None:
    """Raise NotPackable if the program uses a weight that a CUDA graph cannot follow."""
    for weight in weights:
        if weight.device_type == "cpu":
            raise NotPackable(_ON_CPU.format(weight.path), "capture")
