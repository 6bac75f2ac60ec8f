"""Programs that were just compiled, behind their guards and called like the model, to be compared or timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from autocompile.core.program import Program
from autocompile.runtime.base import Loaded, NotPackable
from autocompile.runtime.guards import Guard, Refusal
from autocompile.runtime.model_watch import Watch
from autocompile.workload.call import Call

# As `AheadRuntime.load` loads: a program, what its files hold, the model, and what watches that.
Load = Callable[[Program, Mapping[str, bytes], Any, Watch], Loaded]


class Guarded(Call):
    """Raises what `load` raises. A call that no program takes raises NotPackable."""

    def __init__(
        self, programs: Sequence[Program], load: Load, directory: Path, model: Any, device: torch.device
    ) -> None:
        super().__init__(model)
        watch = Watch(model)
        self._programs = []
        for program in programs:
            files = {name: (directory / name).read_bytes() for name in program.files}
            self._programs.append((Guard(program, model, device), load(program, files, model, watch)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        said = ""
        for guard, run in self._programs:
            tensors = guard(args, kwargs)
            if not isinstance(tensors, Refusal):
                return run(tensors)
            said = tensors.message
        raise NotPackable(f"its own guards refuse it: {said}")
