"""Whether a model is still put together as it was when a compiled program took its place.

Looked at before every call, when a model's weights have just passed through the caches and all of this is cold in
memory. So what is asked is whether anything was written to the modules' dictionaries, of which the interpreter keeps
count; only after a write are they looked through.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from torch.utils.hooks import RemovableHandle

from autocompile.core.identity import moved_attributes, summary
from autocompile.runtime.dictionaries import Written
from autocompile.workload.identity.facts import attribute_text, held_at

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Identities:
    """Which objects modules hold, under which names; `hold` tells whether they are still the same ones."""

    def __init__(self, modules: Iterable[nn.Module], *parts: str) -> None:
        self._modules, self._parts = list(modules), parts
        self._held = self._look()

    def hold(self) -> bool:
        """Whether the same objects lie there, none more and none less."""
        return _names_and_ids(self._look()) == _names_and_ids(self._held)

    def _look(self) -> list[list[tuple[str, Any]]]:
        return [list(vars(module)[part].items()) for module in self._modules for part in self._parts]


class State(NamedTuple):
    """What a look at the modules found: their dictionaries as they were before it, and what differs, or ""."""

    dictionaries: Written
    fault: str


class Watch:
    """Sees what no weight tells: another submodule in the place of one, hooks, other values of attributes.

    `attributes` are those that matter, by path, as `core.identity` has them; by default the mode of every module.
    """

    def __init__(self, model: Any, attributes: Iterable[str] | None = None) -> None:
        named = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
        self._modules = list(named.values())
        self._roots = {"": model}
        paths = (f"{path}.training".lstrip(".") for path in named) if attributes is None else attributes
        self._attributes = tuple(paths) if named else ()
        self._values = self._texts()
        self._children = Identities(self._modules, "_modules")
        self._built_as = self._look()
        self._renewing = threading.Lock()
        self._hooks: list[dict[int, Any]] = []
        self._handles = self._handles_before = -1
        # As of the last look; another object whenever one of the modules' dictionaries was written to since.
        self.state = self._renewed()

    def changed(self) -> str:
        """What differs now, in words, or ""."""
        if not self._modules:
            return ""
        if self.state.dictionaries.is_newer():
            with self._renewing:  # so that an older state is never put in the place of a newer one
                self.state = self._renewed()
        if self.state.fault:
            return self.state.fault
        return "the model has hooks" if self._has_hooks() else ""

    def _renewed(self) -> State:
        """The dictionaries are noted before anything is looked at: what is written meanwhile is seen next time."""
        dictionaries = [one for module in self._modules for one in _dictionaries_of(module)]
        dictionaries += self._settings()
        written = Written(dictionaries)
        self._hooks = _hooks_of(self._modules)
        self._handles = self._handles_before = -1
        now = self._look()
        faults = [words for words, value in now.items() if value != self._built_as[words]]
        faults += [] if self._children.hold() else ["a submodule was replaced"]
        moved = summary(moved_attributes(self._values, self._texts()))
        return State(written, next(filter(None, (*faults, moved)), ""))

    def _look(self) -> dict[str, list[Any]]:
        """What is compared, by what is said where it differs."""
        return {
            "a module is of another class, or has another forward": [
                (type(one), vars(one).get("forward")) for one in self._modules
            ],
            "a module has other parameters or buffers": [_slots_of(one) for one in self._modules],
        }

    def _texts(self) -> dict[str, str]:
        """The attributes' present values, wherever they lie now: a whole `config` may have been replaced."""
        texts = {path: attribute_text(self._roots, path) for path in self._attributes}
        return {path: text for path, text in texts.items() if text is not None}

    def _settings(self) -> list[dict[str, Any]]:
        """The dictionaries of plain objects, such as a `config`, that hold attributes."""
        own = {id(vars(module)) for module in self._modules}
        places = (held_at(self._roots, path) for path in self._attributes)
        held = {id(place[0]): place[0] for place in places if place is not None}
        return [kept_in for key, kept_in in held.items() if key not in own]

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
    return Identities(model.modules() if isinstance(model, nn.Module) else (), "_parameters", "_buffers")


def registered_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer by its path, tied ones under each of theirs."""
    if isinstance(model, nn.Module):
        yield from model.named_parameters(remove_duplicate=False)
        yield from model.named_buffers(remove_duplicate=False)


def has_hooks(model: Any) -> bool:
    """Whether calling the model runs hooks, its own or those of every module."""
    if not isinstance(model, nn.Module):
        return False
    return any(_hooks_of(model.modules())) or bool(_has_any_global_hook())  # type: ignore[no-untyped-call]


def _hooks_of(modules: Iterable[nn.Module]) -> list[dict[int, Any]]:
    """The dictionaries that hold forward hooks."""
    return [hooks for one in modules for hooks in (one._forward_hooks, one._forward_pre_hooks)]  # noqa: SLF001


def _slots_of(module: nn.Module) -> list[tuple[str, bool]]:
    """The names of a module's parameters and buffers, and which of them are None."""
    held = (*module._parameters.items(), *module._buffers.items())  # noqa: SLF001
    return [(name, tensor is None) for name, tensor in held]


def _dictionaries_of(module: nn.Module) -> list[dict[str, Any]]:
    """Those whose change may change what the module computes; torch's own leaves ask for nothing they do not have."""
    parts: list[dict[str, Any]] = [module._modules, module._parameters, module._buffers]  # noqa: SLF001
    is_leaf = type(module).__module__.startswith("torch.nn.modules.") and not isinstance(module, _CONTAINERS)
    return [vars(module), *(filter(None, parts) if is_leaf else parts)]


def _names_and_ids(held: list[list[tuple[str, Any]]]) -> list[list[tuple[str, int]]]:
    return [[(name, id(one)) for name, one in part] for part in held]
