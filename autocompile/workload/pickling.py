"""Pickle models for other processes, by cloudpickle, including what torch's own modules refuse to pickle.

Torch makes a new class for a module with a parametrization (weight norm, spectral norm, as in wav2vec 2.0), and that
class cannot be pickled. Such a module is pickled as its original class, its state and the names of its parametrized
tensors.

A class that is pickled by value keeps its qualified name, because models are identified by it. cloudpickle alone would
shorten the name of a class that is defined in a function or in another class.

A module of transformers is pickled without the hooks that it installs itself (`capturing_hooks.py`).

`torch.nn.attention.SDPBackend`, which models keep to choose an implementation of attention, is pickled by name, because
torch gives this class another name than the one under which it can be imported.

A function behind `functools.lru_cache` is pickled by value where a function is: if it is defined in `__main__`, in a
script that is being tuned, or in another function. Its cache is empty afterwards.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Sequence
from typing import Any

import cloudpickle
from torch import nn
from torch.nn.attention import SDPBackend
from torch.nn.utils import parametrize

from autocompile.workload.capturing_hooks import captures, registered, without_capturing
from autocompile.workload.identity.members import CACHED

# The position of the state in a reduced object; for a class it is a pair of dicts.
_STATE = 2


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle pickler that handles parametrized modules and those of transformers.

    `torch.save` accepts this file as its pickle module.
    """

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild an object, or NotImplemented for the usual way."""
        if isinstance(obj, nn.Module) and parametrize.is_parametrized(obj):
            module: Any = obj
            own: Any = type(obj).__bases__[0]
            state = without_capturing(own.__getstate__(obj))
            return _parametrized, (own, tuple(module.parametrizations)), state
        if isinstance(obj, nn.Module) and captures(obj) and type(obj).__reduce__ is object.__reduce__:
            module = obj
            return registered, (type(module),), without_capturing(module.__getstate__())
        if obj is SDPBackend or isinstance(obj, SDPBackend):
            return _attention_backend, ("" if obj is SDPBackend else obj.name,)
        if isinstance(obj, CACHED) and not _is_importable(obj):
            attributes = {name: value for name, value in vars(obj).items() if name != "__wrapped__"}
            return _cached, (obj.__wrapped__, obj.cache_parameters()), attributes
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > _STATE:
            attributes, _slots = reduced[_STATE]
            attributes["__qualname__"] = obj.__qualname__
        return reduced


def _attention_backend(name: str) -> Any:
    return getattr(SDPBackend, name) if name else SDPBackend


def _is_importable(function: Any) -> bool:
    """Return whether another process can import it by its name."""
    module = sys.modules.get(function.__module__ or "")
    if module is None or module.__name__ == "__main__":
        return False
    by_value = cloudpickle.list_registry_pickle_by_value()
    if any(module.__name__ == name or module.__name__.startswith(f"{name}.") for name in by_value):
        return False
    try:
        return operator.attrgetter(function.__qualname__)(module) is function
    except AttributeError:
        return False


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _parametrized(own: type[nn.Module], names: Sequence[str]) -> nn.Module:
    """Return a module without its state, of a class like the one that torch made for it."""
    module = own.__new__(own)
    parametrize._inject_new_class(module)  # noqa: SLF001  torch has no public way to do it without computing anything
    for name in names:
        parametrize._inject_property(module, name)  # noqa: SLF001
    return module
