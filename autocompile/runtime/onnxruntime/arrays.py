"""Run a program for ONNX Runtime on NumPy arrays. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

from autocompile.core.program import Program
from autocompile.host import usable_cores
from autocompile.runtime.array_guards import Array
from autocompile.runtime.files import Files
from autocompile.runtime.onnxruntime.graph import graph_for_here, session_of
from autocompile.runtime.onnxruntime.library import Place, opened


def load_arrays(program: Program, files: Files) -> ServedArrays:
    """Load a program. Raises Unusable if the library cannot open it, ValueError if its record is invalid."""
    return ServedArrays(program, files)


class ServedArrays:
    """One program. Several threads may call it at once."""

    def __init__(self, program: Program, files: Files) -> None:
        record = session_of(program)
        if any(value.dtype == "bfloat16" for value in (*record.inputs, *record.outputs)):
            raise ValueError("it takes or returns bfloat16, which NumPy does not have")
        graph = graph_for_here(record)
        place = Place(record.threads or usable_cores(), record.device_type, spins=record.spins)
        self._session, self._files = opened(files.path(graph.file), place, graph.level), files  # which are mapped
        self._inputs = [value.name for value in record.inputs]
        self._outputs = [value.name for value in record.outputs]

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Run on the arrays that the guard returned."""
        made: Sequence[Array] = self._session.run(self._outputs, dict(zip(self._inputs, arrays, strict=True)))
        return made
