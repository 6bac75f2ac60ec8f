"""What compiling a model's parts where they lie has changed in them, undone and done again."""

from __future__ import annotations

from typing import Any

from torch import nn

_CHANGED = ("forward", "_compiled_call_impl")
_MISSING = object()


class InPlace:
    """The modules of a model as they are when this is made: how each is called."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._then = self._look()

    def swap(self) -> None:
        """Have them called as they were, and keep for the next time how they are called now."""
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
