"""Undoes and redoes the changes that in-place compilation makes to a model's submodules."""

from __future__ import annotations

from typing import Any

from torch import nn

_CHANGED = ("forward", "_compiled_call_impl")
_MISSING = object()


class InPlace:
    """How each submodule of a model is called, as of the creation of this object."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._then = self._look()

    def swap(self) -> None:
        """Restore how the submodules were called, and remember how they are called now for the next swap."""
        now = self._look()
        for module, held in zip(self._modules, self._then, strict=True):
            for name, value in zip(_CHANGED, held, strict=True):
                if value is _MISSING:
                    vars(module).pop(name, None)
                else:
                    vars(module)[name] = value
        self._then = now

    def _look(self) -> list[list[Any]]:
        return [[vars(module).get(name, _MISSING) for name in _CHANGED] for module in self._modules]
