"""An optimizer's step, compiled in production: where that cannot be, it is done as it is, and told."""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

from autocompile.core.caution import warn
from autocompile.runtime.building import runtime
from autocompile.workload.training.compiled_step import CompiledStep, put_compiled


class CompiledUpdates:
    """The steps of an optimizer of the user's, compiled by a runtime; `told` is given why not, once."""

    def __init__(self, optimizer: Optimizer, name: str, told: Callable[[str], None]) -> None:
        self._own = CompiledStep(optimizer, runtime(name).compiled_update)
        self._told, self._is_compiled = told, True
        put_compiled(optimizer, self)

    def __call__(self) -> None:
        """Do one."""
        if self._is_compiled and self._own.is_for_many_settings:
            self._leave("its settings change from step to step, beside the learning rate, and each is compiled anew")
        if not self._is_compiled:
            self._own.as_it_is()
            return
        import torch._dynamo.exc as dynamo  # noqa: PLC0415  only what compiles may import the compiler

        try:
            self._own()
        except dynamo.TorchDynamoException as fault:  # raised before anything of the step is done
            self._leave(f"compiling it failed: {type(fault).__name__}: {str(fault).splitlines()[0]}")
            self._own.as_it_is()

    def _leave(self, reason: str) -> None:
        self._is_compiled = False
        note = f"the optimizer's step is not compiled any more: {reason}"
        self._told(note)
        warn(f"{note}; tune it again")
