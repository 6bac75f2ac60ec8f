"""Programs that were just compiled, behind their guards and called like the model, to be compared or timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from autocompile.core.program import Program
from autocompile.runtime.base import Loaded, NotPackable
from autocompile.runtime.files import Files
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.workload.call import Call

# As `AheadRuntime.load` loads: a program, its files, the model, and what watches that.
Load = Callable[[Program, Files, Any, Watch], Loaded]


class Guarded(Call):
    """Raises what `load` raises. A call that no program takes raises NotPackable.

    `keeps`: what the files in `directory` lie there as long as, if they do not stay.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        load: Load,
        directory: Path,
        model: Any,
        device: torch.device,
        *,
        keeps: object = None,
    ) -> None:
        super().__init__(model)
        self._keeps = keeps
        watch = Watch(model)
        self._programs = []
        for program in programs:
            self._programs.append((Guard(program, model, device), load(program, Files(directory), model, watch)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        said = ""
        for guard, run in self._programs:
            tensors = guard(args, kwargs)
            if not isinstance(tensors, Refusal):
                return run(tensors)
            said = tensors.message
        raise NotPackable(f"its own guards refuse it: {said}")
