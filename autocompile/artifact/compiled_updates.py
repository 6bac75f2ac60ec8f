"""Runs an optimizer's step compiled, in production; if that is impossible, runs it as it is, with a warning."""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

from autocompile.core.caution import warn
from autocompile.runtime.building import runtime
from autocompile.workload.training.compiled_step import CompiledStep, put_compiled


class CompiledUpdates:
    """The steps of the user's optimizer, compiled by a runtime. If they cannot be, `told` is called with the reason."""

    def __init__(self, optimizer: Optimizer, name: str, told: Callable[[str], None]) -> None:
        self._own = CompiledStep(optimizer, runtime(name).compiled_update)
        self._told, self._is_compiled = told, True
        put_compiled(optimizer, self)

    def __call__(self) -> None:
        """Do one step."""
        if self._is_compiled and self._own.is_for_many_settings:
            self._leave("settings other than the learning rate change from step to step, and each change recompiles it")
        if not self._is_compiled:
            self._own.as_it_is()
            return
        import torch._dynamo.exc as dynamo  # noqa: PLC0415  only what compiles may import the compiler

        try:
            self._own()
        except dynamo.TorchDynamoException as fault:  # raised before the step has changed anything
            self._leave(f"compiling it failed: {type(fault).__name__}: {str(fault).splitlines()[0]}")
            self._own.as_it_is()

    def _leave(self, reason: str) -> None:
        self._is_compiled = False
        note = f"the optimizer's step is no longer compiled: {reason}"
        self._told(note)
        warn(f"{note}; tune it again")
