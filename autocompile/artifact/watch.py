"""Whether a model is still put together as it was when a compiled program took its place.

Looked at before every call, when a model's weights have just passed through the caches and all of this is cold in
memory: so it goes over flat lists, without a step of Python for each of the model's parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import is_, itemgetter
from typing import Any

from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from torch.utils.hooks import RemovableHandle

_TRAINING = itemgetter("training")


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
        self._modules = list(model.modules()) if isinstance(model, nn.Module) else []
        self._children = Identities(module._modules for module in self._modules)  # noqa: SLF001
        self._hooks = _hooks_of(self._modules)
        # Their own dictionaries, as an attribute's lookup goes through more of what is cold.
        self._attributes = [vars(module) for module in self._modules if "training" in vars(module)]
        self._training = list(map(_TRAINING, self._attributes))
        self._handles = self._handles_before = -1

    def changed(self) -> str:
        """What differs now, in words, or ""."""
        if not self._modules:
            return ""
        if list(map(_TRAINING, self._attributes)) != self._training:
            return "a module went from training to evaluation mode, or back"
        if self._has_hooks():
            return "the model has hooks"
        return "" if self._children.hold() else "a submodule was replaced"

    def _has_hooks(self) -> bool:
        """Every hook takes the next number before it is registered; only after that are this model's looked through."""
        handles = RemovableHandle.next_id
        if handles == self._handles:
            return False
        if any(self._hooks) or _has_any_global_hook():  # type: ignore[no-untyped-call]
            return True
        if handles == self._handles_before:
            self._handles = handles
        self._handles_before = handles
        return False


def tensors_of(model: Any) -> Identities:
    """The model's parameters and buffers, wherever they lie in it."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return Identities(held for module in modules for held in (module._parameters, module._buffers))  # noqa: SLF001


def has_hooks(model: Any) -> bool:
    """Whether calling the model runs hooks, its own or those of every module."""
    if not isinstance(model, nn.Module):
        return False
    return any(_hooks_of(model.modules())) or bool(_has_any_global_hook())  # type: ignore[no-untyped-call]


def _hooks_of(modules: Iterable[nn.Module]) -> list[dict[int, Any]]:
    """The dictionaries that hold forward hooks."""
    return [hooks for one in modules for hooks in (one._forward_hooks, one._forward_pre_hooks)]  # noqa: SLF001
