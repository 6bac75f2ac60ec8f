"""Whether a model is still put together as it was when a compiled program took its place.

Looked at before every call, when a model's weights have just passed through the caches and all of this is cold in
memory: so it goes over flat lists, without a step of Python for each of the model's parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import is_
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


class Identities:
    """Which objects lie in some dictionaries; `hold` tells whether they are still the same ones."""

    def __init__(self, dictionaries: Iterable[dict[str, Any]]) -> None:
        self._dictionaries = [one for one in dictionaries if one]
        self._objects = list(chain.from_iterable(map(dict.values, self._dictionaries)))

    def hold(self) -> bool:
        """Whether the same objects lie there, none more and none less."""
        return sum(map(len, self._dictionaries)) == len(self._objects) and all(
            map(is_, chain.from_iterable(map(dict.values, self._dictionaries)), self._objects)
        )


class Watch:
    """Sees what no weight tells: another submodule in the place of one, hooks, training mode."""

    def __init__(self, model: Any) -> None:
        self._model = model if isinstance(model, nn.Module) else None
        modules = list(self._model.modules()) if self._model is not None else []
        self._children = Identities(module._modules for module in modules)  # noqa: SLF001
        self._hooks = [hooks for module in modules for hooks in hooks_of(module)]
        self._training = self._model.training if self._model is not None else False
        self._handles = -1

    def changed(self) -> str:
        """What differs now, in words, or ""."""
        if self._model is None:
            return ""
        if self._model.training is not self._training:
            return f"the model is in {'training' if self._model.training else 'evaluation'} mode"
        # Every hook that is registered anywhere takes the next number; only then are this model's looked through.
        handles = RemovableHandle.next_id
        if handles != self._handles:
            if any(self._hooks):
                return "the model has hooks"
            self._handles = handles
        return "" if self._children.hold() else "a submodule was replaced"


def tensors_of(model: Any) -> Identities:
    """The model's parameters and buffers, wherever they lie in it."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return Identities(held for module in modules for held in (module._parameters, module._buffers))  # noqa: SLF001


def hooks_of(module: nn.Module) -> Iterator[dict[int, Any]]:
    """The dictionaries that hold a module's forward hooks."""
    yield module._forward_hooks  # noqa: SLF001
    yield module._forward_pre_hooks  # noqa: SLF001
