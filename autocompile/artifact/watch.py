"""Whether a model is still put together as it was when a compiled program took its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn


class Watch:
    """Sees what no weight tells: another submodule in the place of one, hooks, training mode."""

    def __init__(self, model: Any) -> None:
        self._model = model if isinstance(model, nn.Module) else None
        modules = list(self._model.modules()) if self._model is not None else []
        self._children = [(m._modules, name, child) for m in modules for name, child in m._modules.items()]  # noqa: SLF001
        self._hooks = [hooks for module in modules for hooks in hooks_of(module)]
        self._training = self._model.training if self._model is not None else False

    def changed(self) -> str:
        """What differs now, in words, or ""."""
        model = self._model
        if model is None:
            return ""
        if model.training is not self._training:
            return f"the model is in {'training' if model.training else 'evaluation'} mode"
        if any(self._hooks):
            return "the model has hooks"
        for kept_in, name, child in self._children:
            if kept_in.get(name) is not child:
                return f"submodule {name!r} was replaced"
        return ""


def hooks_of(module: nn.Module) -> Iterator[dict[int, Any]]:
    """The dictionaries that hold a module's forward hooks."""
    yield module._forward_hooks  # noqa: SLF001
    yield module._forward_pre_hooks  # noqa: SLF001
