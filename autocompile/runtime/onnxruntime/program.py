"""Run a program for ONNX Runtime on torch's tensors."""

from __future__ import annotations

from typing import Any

import torch

from autocompile.core.program import Program, TensorGuard
from autocompile.runtime.base import Loaded, NotLoadable
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import registered_tensors
from autocompile.runtime.onnxruntime.graph import Session, graph_for_here, session_of
from autocompile.runtime.onnxruntime.library import Place, Unusable, opened
from autocompile.runtime.outputs import assembler


def loaded(program: Program, files: Files, model: Any) -> Loaded:
    """Return a function that runs a program, on the model's GPU if the model is on one. Raises NotLoadable."""
    try:
        record = session_of(program)
    except ValueError as fault:
        raise NotLoadable(f"its record cannot be read: {fault}") from fault
    if record.device_type == "cpu":
        return OnCPU(program, record, files)
    from autocompile.runtime.onnxruntime.cuda import OnGPU  # noqa: PLC0415  rarely needed

    index = next((tensor.device.index for _path, tensor in registered_tensors(model)), None)
    return OnGPU(program, record, files, torch.cuda.current_device() if index is None else index)


def session_for(record: Session, files: Files, index: int = 0) -> Any:
    """Return a session that runs the program, on the device of this index. Raises NotLoadable."""
    graph = graph_for_here(record)
    place = Place(record.threads or torch.get_num_threads(), record.device_type, index, record.spins)
    try:
        return opened(files.path(graph.file), place, graph.level)
    except Unusable as fault:
        raise NotLoadable(str(fault)) from fault


class OnCPU:
    """A program that reads torch's tensors in place and returns outputs in new memory.

    Several threads may call it at once.
    """

    def __init__(self, program: Program, record: Session, files: Files) -> None:
        self._inputs = tuple(value.name for value in record.inputs)
        self._outputs = [value.name for value in record.outputs]
        self._session, self._files = session_for(record, files), files  # the session has mapped them
        # The public method checks the names again, which takes a microsecond.
        self._run = getattr(self._session, "_sess", self._session).run
        self._is_laid_out = all(
            guard.layout == "contiguous" for guard in program.guards if isinstance(guard, TensorGuard)
        )
        self._assemble = assembler(program)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """Run on the tensors that the guard returned."""
        if not self._is_laid_out:
            tensors = [tensor.contiguous() for tensor in tensors]
        given = {
            name: (tensor.detach() if tensor.requires_grad else tensor).numpy()
            for name, tensor in zip(self._inputs, tensors, strict=True)
        }
        return self._assemble([torch.from_numpy(array) for array in self._run(self._outputs, given, None)])
