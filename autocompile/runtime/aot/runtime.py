"""Compile a model ahead of time with AOTInductor, and run the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.aot.program import loaded
from autocompile.runtime.base import Fault, Loaded
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import Watch
from autocompile.workload.attention import attention_as
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample
from autocompile.workload.tf32 import TF32, products_as, products_in_tf32

# In the compiler's message when it meets an operator on a sparse tensor.
_OF_SPARSE_TENSORS = "dispatch key DispatchKey.Sparse"
_SPARSE = "the compiler does not support the model's sparse tensors; use dense ones, or index_add"


class AheadOfTimeRuntime(AheadRuntime):
    """Serves only the calls that its programs were made for."""

    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
    ) -> Program:
        from autocompile.runtime.aot.compile import compile_ahead  # noqa: PLC0415  production imports no packer

        with products_as(plan.float32), attention_as(plan.attention):
            program = compile_ahead(model, plan, sample, axes, directory, name)
        return replace(program, own={**program.own, "float32": plan.float32}) if plan.float32 else program

    def problem_on(self, device_type: str) -> str:
        from autocompile.runtime.aot.cuda_home import problem  # noqa: PLC0415  production imports no packer

        return problem() if device_type == "cuda" else ""

    def load(self, program: Program, files: Files, model: Any, watch: Watch) -> Loaded:
        run = loaded(program, files, model, watch)
        products = program.own.get("float32", "")
        return _in_tf32(run) if products == TF32 else run

    def known_fault(self, fault: BaseException) -> Fault | None:
        return Fault(fault, "unsupported", "model", _SPARSE) if _OF_SPARSE_TENSORS in str(fault) else None


def _in_tf32(run: Loaded) -> Loaded:
    """Allow TF32 during each call.

    Compiled kernels have TF32 in their code, but calls of cuBLAS use the process's setting.
    """

    def called(tensors: list[torch.Tensor]) -> Any:
        with products_in_tf32():
            return run(tensors)

    return called


RUNTIME = AheadOfTimeRuntime()
