"""A loss that is scaled for its gradients: in float16 small ones would be zero, and too large ones infinite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from autocompile.core.errors import UsageError


class Scaler(torch.amp.GradScaler):
    """Torch's own, which also tells of a step that is done on gradients which it has scaled and nobody unscaled."""

    _has_scaled = _is_stepping = False

    def scale(self, outputs: Any) -> Any:
        """As its base class's; gradients of what it gives are scaled from here on."""
        self._has_scaled = self.is_enabled()
        return super().scale(outputs)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """As its base class's."""
        self._is_stepping = True
        try:
            return super().step(optimizer, *args, **kwargs)
        finally:
            self._is_stepping = False

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """As its base class's; the step is over."""
        self._has_scaled = False
        super().update(new_scale)

    @contextmanager
    def undone_if_it_raises(self, optimizer: Optimizer) -> Iterator[None]:
        """Where a step within is broken off, also by Ctrl-C, forget it; else torch refuses every later one.

        The scale stays as it is.
        """
        try:
            yield
        except BaseException:
            if self.is_enabled():  # else it keeps no states
                self._forget(optimizer)
            raise

    def _forget(self, optimizer: Optimizer) -> None:
        state = self._per_optimizer_states.pop(id(optimizer), None)
        if state is not None and state["stage"] is not OptState.READY:  # its gradients were unscaled
            self._has_scaled = False

    def check(self, *_given: Any) -> None:
        """A hook of an optimizer's steps. Raises UsageError where one is done beside it on scaled gradients."""
        if self._has_scaled and not self._is_stepping:
            raise UsageError(
                "its gradients are scaled, as they are of a loss in float16",
                where="step.optimizer",
                remedy="call step.scaler.step(step.optimizer) and step.scaler.update(), and before you clip gradients "
                "step.scaler.unscale_(step.optimizer)",
            )


def scaler_for(autocast: str, device_type: str) -> Scaler:
    """For losses computed in this precision; of others than float16 it leaves all as it is."""
    return Scaler(device_type, enabled=autocast == "float16")
