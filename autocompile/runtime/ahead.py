"""Runtimes whose programs are compiled ahead: files that are loaded again, behind guards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.runtime.base import Loaded, NotPackable, Runtime
from autocompile.runtime.built import Built, transformed
from autocompile.runtime.devices import computing_device
from autocompile.runtime.files import Files
from autocompile.runtime.guarded import Guarded
from autocompile.runtime.model_watch import Watch
from autocompile.scratch import Scratch
from autocompile.workload.axes import FreeAxis
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample


class AheadRuntime(Runtime):
    """What a Kind that packs as `load` has as its other half."""

    def build(self, step: Call, plan: Plan, samples: Sequence[Sample], /, *, isolate: bool) -> Built:
        """One program for each sample, exactly as it is; calls like no sample raise NotPackable."""
        if not samples:
            raise NotPackable("nothing can be compiled ahead without a call to compile for")
        target = transformed(step.model, plan, isolate=isolate)
        kept = Scratch()
        programs = [
            self.compile_ahead(target, plan, sample, (), kept.path, f"program{number}")
            for number, sample in enumerate(samples)
        ]
        guarded = Guarded(programs, self.load, kept.path, target, computing_device(target, samples[0]), keeps=kept)
        # Precision is within the programs.
        return Built(guarded, replace(plan, autocast=""), step.device_type, target)

    @abstractmethod
    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
    ) -> Program:
        """Compile one program into `directory`, for calls like `sample` over these ranges; its files begin with `name`.

        Raises NotPackable.
        """

    @abstractmethod
    def load(self, program: Program, files: Files, model: Any, watch: Watch) -> Loaded:
        """What serves a program; its `files` lie there as long as that is kept, and `watch` is the model's.

        Raises WeightsDiffer and NotLoadable.
        """
