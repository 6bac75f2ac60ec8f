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

# The signature of `AheadRuntime.load`: the program, its files, the model, and the model's `Watch`.
Load = Callable[[Program, Files, Any, Watch], Loaded]


class Guarded(Call):
    """A call that runs the first program that accepts it. If no program accepts it, it raises NotPackable.

    The constructor raises what `load` raises. The object holds on to `keeps`, on which the files in `directory` depend
    if they are temporary.
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
        raise NotPackable(f"the program's guards refuse this call: {said}")
