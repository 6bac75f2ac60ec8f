"""Scale a loss for its gradients: in float16, small gradients would become zero and large ones infinite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from autocompile.core.errors import UsageError


class Scaler(torch.amp.GradScaler):
    """Torch's GradScaler, which also detects an optimizer step on gradients that are still scaled."""

    _has_scaled = _is_stepping = False

    def scale(self, outputs: Any) -> Any:
        """Scale as the base class does. From here on, gradients of the result are scaled."""
        self._has_scaled = self.is_enabled()
        return super().scale(outputs)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """Do a step as the base class does."""
        self._is_stepping = True
        try:
            return super().step(optimizer, *args, **kwargs)
        finally:
            self._is_stepping = False

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Update the scale as the base class does. The step is then over."""
        self._has_scaled = False
        super().update(new_scale)

    @contextmanager
    def undone_if_it_raises(self, optimizer: Optimizer) -> Iterator[None]:
        """If the step is interrupted, also by Ctrl-C, forget it. Otherwise torch would refuse every later step.

        The scale stays as it is.
        """
        try:
            yield
        except BaseException:
            if self.is_enabled():  # when disabled, it keeps no state
                self._forget(optimizer)
            raise

    def _forget(self, optimizer: Optimizer) -> None:
        state = self._per_optimizer_states.pop(id(optimizer), None)
        if state is not None and state["stage"] is not OptState.READY:  # its gradients were unscaled
            self._has_scaled = False

    def check(self, *_given: Any) -> None:
        """Raise UsageError if a step is done on scaled gradients without this scaler.

        A hook of the optimizer's steps.
        """
        if self._has_scaled and not self._is_stepping:
            raise UsageError(
                "its gradients are still scaled, because the loss is computed in float16",
                where="step.optimizer",
                remedy="call step.scaler.step(step.optimizer) and step.scaler.update(); before you clip gradients, "
                "also call step.scaler.unscale_(step.optimizer)",
            )


def scaler_for(autocast: str, device_type: str) -> Scaler:
    """Return a scaler for losses computed in this precision. It is disabled unless that is float16."""
    return Scaler(device_type, enabled=autocast == "float16")
