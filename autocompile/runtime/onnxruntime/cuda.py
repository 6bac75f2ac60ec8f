"""Run a program for ONNX Runtime on an NVIDIA GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from autocompile.core.program import Program
from autocompile.runtime.files import Files
from autocompile.runtime.onnxruntime.graph import Session
from autocompile.runtime.onnxruntime.program import session_for
from autocompile.runtime.outputs import assembler


class OnGPU:
    """A program that reads torch's tensors in place on the GPU of this index, and leaves its outputs there."""

    def __init__(self, program: Program, record: Session, files: Files, index: int) -> None:
        self._inputs = tuple((value.name, np.dtype(value.dtype)) for value in record.inputs)
        self._outputs = tuple(value.name for value in record.outputs)
        self._session, self._files = session_for(record, files, index), files
        self._index = index
        self._assemble = assembler(program)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """Run on the tensors that the guard returned."""
        held = [tensor.detach().contiguous() for tensor in tensors]
        binding = self._session.io_binding()
        for (name, dtype), tensor in zip(self._inputs, held, strict=True):
            on, index = tensor.device.type, tensor.device.index or 0  # an input may be on the CPU
            binding.bind_input(name, on, index, dtype, tuple(tensor.shape), tensor.data_ptr())
        for name in self._outputs:
            binding.bind_output(name, "cuda", self._index)
        # The library has its own stream. Pending work on torch's stream may still write the inputs, or read earlier
        # outputs whose memory may be reused.
        torch.cuda.current_stream(self._index).synchronize()
        self._session.run_with_iobinding(binding)
        return self._assemble([from_dlpack(value) for value in binding.get_outputs()])
