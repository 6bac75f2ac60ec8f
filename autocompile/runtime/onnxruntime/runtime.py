"""Convert a model to ONNX and run it with ONNX Runtime."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.base import Loaded
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.onnxruntime.library import CONVERTERS, library
from autocompile.runtime.onnxruntime.program import loaded
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample

# The module that torch's converter imports at its first call.
_IMPORTED_LATER = "torch.onnx._internal.exporter._core"


class OnnxRuntime(AheadRuntime):
    """Converts during the build. A loaded program runs without the libraries that the conversion needs."""

    def prepare(self) -> None:
        library()
        for module in CONVERTERS:
            importlib.import_module(module)
        with suppress(ImportError):  # torch may move this private module
            importlib.import_module(_IMPORTED_LATER)

    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
    ) -> Program:
        from autocompile.runtime.onnxruntime.compile import compile_ahead  # noqa: PLC0415  production imports no packer

        return compile_ahead(model, plan, sample, axes, directory, name)

    def load(self, program: Program, files: Files, model: Any, _watch: Watch) -> Loaded:
        return loaded(program, files, model)


RUNTIME = OnnxRuntime()
