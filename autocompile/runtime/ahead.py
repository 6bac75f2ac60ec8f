"""Runtimes that compile programs ahead of time into files, which are loaded again and run behind guards."""

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
    """The base class of the runtimes whose `Kind` has `packs_as = "load"`."""

    def build(self, step: Call, plan: Plan, samples: Sequence[Sample], /, *, isolate: bool) -> Built:
        """Compile one program for each sample, with fixed sizes. A call that matches no sample raises NotPackable."""
        if not samples:
            raise NotPackable("nothing can be compiled ahead without a call to compile for")
        target = transformed(step.model, plan, isolate=isolate)
        kept = Scratch()
        programs = [
            self.compile_ahead(target, plan, sample, (), kept.path, f"program{number}")
            for number, sample in enumerate(samples)
        ]
        guarded = Guarded(programs, self.load, kept.path, target, computing_device(target, samples[0]), keeps=kept)
        # The programs themselves contain the casts for the precision.
        return Built(guarded, replace(plan, autocast=""), step.device_type, target)

    @abstractmethod
    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
    ) -> Program:
        """Compile one program into `directory`, for calls like `sample` whose sizes are in the ranges of `axes`.

        The names of the program's files begin with `name`. Raises NotPackable if the model cannot be compiled.
        """

    @abstractmethod
    def load(self, program: Program, files: Files, model: Any, watch: Watch) -> Loaded:
        """Return a function that runs a program.

        `files` stay on the disk as long as the caller keeps that object. `watch` is the model's `Watch`. Raises
        WeightsDiffer and NotLoadable.
        """
