"""Convert a model for OpenVINO, store it in compiled form, and load it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.base import Loaded
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.openvino.library import openvino
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample


class OpenVinoRuntime(AheadRuntime):
    """The programs have their own weights and need no model."""

    def prepare(self) -> None:
        """Import the library, which starts no threads at its import. Only child processes use it."""
        openvino()

    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
    ) -> Program:
        from autocompile.runtime.openvino.compile import compile_ahead  # noqa: PLC0415  production imports no packer

        return compile_ahead(model, plan, sample, axes, directory, name)

    def load(self, program: Program, files: Files, model: Any, watch: Watch) -> Loaded:  # noqa: ARG002  see the class
        from autocompile.runtime.openvino.program import Served  # noqa: PLC0415  imports the library

        return Served(program, files)


RUNTIME = OpenVinoRuntime()
