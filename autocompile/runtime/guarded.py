"""Programs that were just compiled, behind their guards and called like the model, to be compared or timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from autocompile.core.program import Program
from autocompile.runtime.base import NotPackable, Runtime
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.workload.call import Call


class Guarded(Call):
    """Raises what loading raises: see `Runtime.load`. A call that no program takes raises NotPackable."""

    def __init__(
        self, programs: Sequence[Program], runtime: Runtime, directory: Path, model: Any, device: torch.device
    ) -> None:
        super().__init__(model)
        watch = Watch(model)
        self._programs = []
        for program in programs:
            files = {name: (directory / name).read_bytes() for name in program.files}
            self._programs.append((Guard(program, model, device), runtime.load(program, files, model, watch)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        said = ""
        for guard, run in self._programs:
            tensors = guard(args, kwargs)
            if not isinstance(tensors, Refusal):
                return run(tensors)
            said = tensors.message
        raise NotPackable(f"its own guards refuse it: {said}")
