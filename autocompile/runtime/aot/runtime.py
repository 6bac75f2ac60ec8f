"""A model compiled ahead by AOTInductor, and what was compiled so run on the model's own weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.aot.program import Native
from autocompile.runtime.aot.settings import settings_of
from autocompile.runtime.model_watch import Watch
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample

_FROZEN = "its weights stay outside, so they are not frozen in"
_FORMAT = "its weights are the model's own, so they stay in the model's memory format"


class AheadOfTimeRuntime(AheadRuntime):
    """Serves just the calls that its programs were made for."""

    def refusal(self, plan: Plan) -> str:
        if settings_of(plan).padded:
            return "calls are filled up to buckets, which a compiled program does not do"
        return ""

    def notes(self, plan: Plan) -> tuple[str, ...]:
        goes_without = {_FROZEN: settings_of(plan).frozen, _FORMAT: bool(plan.memory_format)}
        return tuple(note for note, applies in goes_without.items() if applies)

    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
    ) -> Program:
        from autocompile.runtime.aot.compile import compile_ahead  # noqa: PLC0415  production imports no packer

        return compile_ahead(model, plan, sample, axes, directory, name)

    def load(self, program: Program, files: Mapping[str, bytes], model: Any, watch: Watch) -> Native:
        return Native(program, files, model, watch)


RUNTIME = AheadOfTimeRuntime()
