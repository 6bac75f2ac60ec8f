"""Calls of transformers' `generate`, handed to somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any

from torch import nn

from autocompile.workload.generating.imports import when_imported

# Imported by whoever generates, and not before.
GENERATES = "transformers.generation.utils"

# Makes a call of `generate` in the program's place: of the model, its arguments by name, and what does it as it is.
Pass = Callable[[nn.Module, dict[str, Any], Callable[..., Any]], Any]


@contextmanager
def generate_replaced(passed: Pass) -> Iterator[None]:
    """Hand each call of transformers' `generate` to `passed`, also where transformers is imported only within."""
    undo: list[Callable[[], None]] = []

    def replace(module: ModuleType) -> None:
        mixin = module.GenerationMixin
        before = mixin.generate

        @wraps(before)
        def generate(self: nn.Module, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
            if args:  # a call that gives more than its prompt by position
                return before(self, inputs, *args, **kwargs)
            named = kwargs if inputs is None else {"inputs": inputs, **kwargs}
            return passed(self, named, before)

        mixin.generate = generate
        undo.append(lambda: setattr(mixin, "generate", before))

    with when_imported(GENERATES, replace):
        try:
            yield
        finally:
            for put_back in undo:
                put_back()
