"""Check whether a model still has the structure that it had when a compiled program replaced it.

This check runs before every call. At that time, the model's weights have passed through the processor's caches, and
everything that the check reads has been evicted from them. Therefore it checks first whether anything was written to
the modules' dictionaries, of which the interpreter keeps count. Only after a write are the dictionaries searched.
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
from autocompile.runtime.outside import Outside
from autocompile.workload.capturing_hooks import is_capturing
from autocompile.workload.identity.facts import attribute_text, held_at
from autocompile.workload.identity.state import in_place_of_class

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Identities:
    """Which objects the modules hold under which names. `hold` checks whether they are still the same objects."""

    def __init__(self, modules: Iterable[nn.Module], *parts: str) -> None:
        self._modules, self._parts = list(modules), parts
        self._held = self._look()

    def hold(self) -> bool:
        """Return whether the modules hold the same objects, with none added and none removed."""
        return _names_and_ids(self._look()) == _names_and_ids(self._held)

    def _look(self) -> list[list[tuple[str, Any]]]:
        return [list(vars(module)[part].items()) for module in self._modules for part in self._parts]


class State(NamedTuple):
    """The result of a check: the modules' dictionaries as they were before it, and the difference found, or ""."""

    dictionaries: Written
    fault: str


class Watch:
    """Detect changes that do not show in the weights: replaced submodules, hooks, and other values of attributes.

    `attributes` are the paths of the attributes that matter, as in `core.identity`. By default these are the `training`
    flags of all modules. With `runs_hooks`, the hooks that the model has now are a part of what serves, and only others
    are a change. With `outside`, changes outside of the modules are detected, too.
    """

    def __init__(
        self,
        model: Any,
        attributes: Iterable[str] | None = None,
        *,
        runs_hooks: bool = False,
        outside: Outside | None = None,
    ) -> None:
        named = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
        self._modules = list(named.values())
        self._roots = {"": model}
        self._outside, self._of_classes = outside, outside.of_classes if outside is not None else ()
        paths = (f"{path}.training".lstrip(".") for path in named) if attributes is None else attributes
        self._attributes = tuple(paths) if named else ()
        self._values = self._texts()
        self._children = Identities(self._modules, "_modules")
        self._built_as = self._look()
        self._renewing = threading.Lock()
        self._hooks: list[dict[int, Any]] = []
        self._handles = self._handles_before = -1
        # The result of the last check. It is a new object after each write to one of the modules' dictionaries.
        self.state = self._renewed()
        self._first_hooks = _others(self._hooks) if runs_hooks else []

    def changed(self) -> str:
        """Return what has changed as text, or ""."""
        if self._outside is not None and (moved := self._outside.changed()):
            return moved
        if not self._modules:
            return ""
        if self.state.dictionaries.is_newer():
            with self._renewing:  # so that an older state never replaces a newer one
                self.state = self._renewed()
        if self.state.fault:
            return self.state.fault
        return self._other_hooks()

    def _renewed(self) -> State:
        """Return a new state. It records the dictionaries first, so that the next check sees writes during this one."""
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
        """Return the values to compare, by the message for a difference."""
        return {
            "a module is of another class, or has another forward": [
                (type(one), vars(one).get("forward")) for one in self._modules
            ],
            "a module has other parameters or buffers": [_slots_of(one) for one in self._modules],
            "a module has another attribute in place of one of its class": [
                in_place_of_class(one, self._of_classes) for one in self._modules
            ],
        }

    def _texts(self) -> dict[str, str]:
        """Return the attributes' present values.

        Each is looked up again, because a whole `config` may have been replaced.
        """
        texts = {path: attribute_text(self._roots, path) for path in self._attributes}
        return {path: text for path, text in texts.items() if text is not None}

    def _settings(self) -> list[dict[str, Any]]:
        """Return the dictionaries of plain objects, such as a `config`, that hold attributes."""
        own = {id(vars(module)) for module in self._modules}
        places = (held_at(self._roots, path) for path in self._attributes)
        held = {id(place[0]): place[0] for place in places if place is not None}
        return [kept_in for key, kept_in in held.items() if key not in own]

    def _other_hooks(self) -> str:
        """Return how the model's hooks differ from those that it had at first, as text, or "".

        Every new hook takes the next number of a global counter before it is registered. If the model had no hooks,
        its hooks are searched only after that number has changed.
        """
        handles = RemovableHandle.next_id
        if handles == self._handles and not self._first_hooks:
            return ""
        if _has_any_global_hook():  # type: ignore[no-untyped-call]
            return "the model has hooks"
        if not _are_the_same(_others(self._hooks), self._first_hooks):
            return "the model has other hooks" if self._first_hooks else "the model has hooks"
        if handles == self._handles_before:
            self._handles = handles
        self._handles_before = handles
        return ""


def tensors_of(model: Any) -> Identities:
    """Return the identities of all parameters and buffers of the model."""
    return Identities(model.modules() if isinstance(model, nn.Module) else (), "_parameters", "_buffers")


def registered_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every parameter and buffer by path; a tied tensor appears under each of its paths."""
    if isinstance(model, nn.Module):
        yield from model.named_parameters(remove_duplicate=False)
        yield from model.named_buffers(remove_duplicate=False)


def has_hooks(model: Any) -> bool:
    """Return whether a call of the model runs hooks, either its own or global ones.

    Those by which transformers collects outputs do not count: a compiled program has the outputs.
    """
    if not isinstance(model, nn.Module):
        return False
    return bool(_others(_hooks_of(model.modules()))) or bool(_has_any_global_hook())  # type: ignore[no-untyped-call]


def _hooks_of(modules: Iterable[nn.Module]) -> list[dict[int, Any]]:
    """Return the dictionaries that hold forward hooks."""
    return [hooks for one in modules for hooks in (one._forward_hooks, one._forward_pre_hooks)]  # noqa: SLF001


def _others(hooks: Iterable[dict[int, Any]]) -> list[Any]:
    return [hook for some in hooks for hook in some.values() if not is_capturing(hook)]


def _are_the_same(hooks: list[Any], others: list[Any]) -> bool:
    return len(hooks) == len(others) and all(one is other for one, other in zip(hooks, others, strict=True))


def _slots_of(module: nn.Module) -> list[tuple[str, bool]]:
    """Return the names of a module's parameters and buffers, and which of them are None."""
    held = (*module._parameters.items(), *module._buffers.items())  # noqa: SLF001
    return [(name, tensor is None) for name, tensor in held]


def _dictionaries_of(module: nn.Module) -> list[dict[str, Any]]:
    """Return the dictionaries in which a change may change what the module computes.

    Empty dictionaries of torch's own leaf modules are left out, because these modules do not use them.
    """
    parts: list[dict[str, Any]] = [module._modules, module._parameters, module._buffers]  # noqa: SLF001
    is_leaf = type(module).__module__.startswith("torch.nn.modules.") and not isinstance(module, _CONTAINERS)
    return [vars(module), *(filter(None, parts) if is_leaf else parts)]


def _names_and_ids(held: list[list[tuple[str, Any]]]) -> list[list[tuple[str, int]]]:
    return [[(name, id(one)) for name, one in part] for part in held]
