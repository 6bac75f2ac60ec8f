"""Convert an exported program to ONNX."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.onnx import ONNXProgram

from autocompile.runtime.base import NotPackable
from autocompile.runtime.onnxruntime.faults import Inexpressible
from autocompile.runtime.onnxruntime.library import CONVERTERS
from autocompile.runtime.onnxruntime.words import why_not_converted

# These loggers report each step, and each library that is not installed.
_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir", "onnx")


def convert(program: ExportedProgram, path: Path) -> None:
    """Write the program to `path` as an ONNX graph, with its weights next to it. Raises NotPackable.

    The converter records the lines of the user's code, with their file names, in the graph.
    """
    converted(program).save(path, external_data=True)


def converted(program: ExportedProgram, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> ONNXProgram:
    """Return the program as an ONNX graph, with these names for its inputs and outputs if given. Raises NotPackable."""
    for module in CONVERTERS:
        try:
            importlib.import_module(module)
        except ImportError as fault:
            raise NotPackable(f"converting needs {module}, which cannot be imported ({fault}); install it") from fault
    with _quiet():
        try:
            with torch.no_grad():
                made = torch.onnx.export(
                    program,
                    dynamo=True,
                    verbose=False,
                    input_names=inputs or None,
                    output_names=outputs or None,
                )
        except Exception as fault:  # the converter raises dozens of types
            raise Inexpressible(why_not_converted(fault, program)) from fault
        assert made is not None
        assert made.exported_program is not None
        signature = made.exported_program.graph_signature
        changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
        if changed:
            raise Inexpressible(f"a call changes {changed[0].removeprefix('model.')}, which an ONNX graph cannot do")
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    levels = {one: one.level for one in map(logging.getLogger, _LOGGERS)}
    for one in levels:
        one.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in levels.items():
            one.setLevel(level)
