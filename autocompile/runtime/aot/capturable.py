"""Whether a CUDA graph can be captured of a program: it would replay what later calls or weights change."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autocompile.runtime.aot.package import Weight
from autocompile.runtime.base import NotPackable
from autocompile.workload.axes import FreeAxis, leaves_of
from autocompile.workload.samples import Sample

_ON_CPU = "a CUDA graph does not read what lies on the CPU, as {} does; move it to the GPU"


def check_calls(sample: Sample, axes: Sequence[FreeAxis]) -> None:
    """Raises NotPackable where it is for calls that a graph cannot serve."""
    tensors = [leaf for leaf in leaves_of(sample) if isinstance(leaf, torch.Tensor)]
    if axes:
        raise NotPackable("a CUDA graph has the sizes of one call, and its calls differ in size", "capture")
    if not tensors:
        raise NotPackable("a CUDA graph needs a tensor among the arguments, and there is none", "capture")
    if any(tensor.device.type == "cpu" for tensor in tensors):
        raise NotPackable(_ON_CPU.format("an argument"), "capture")


def check_weights(weights: Sequence[Weight]) -> None:
    """Raises NotPackable where the program takes a weight that a graph cannot follow."""
    for weight in weights:
        if weight.device_type == "cpu":
            raise NotPackable(_ON_CPU.format(weight.path), "capture")
