"""The hooks by which transformers collects hidden states and attentions.

A model of transformers installs them itself, in the first call that asks for such outputs. They belong to the model's
own code. They refer to a variable of transformers that cannot be pickled, so a pickled model goes without them and
installs them again. For that it needs an entry in a registry that only its constructor makes, and unpickling does not
run the constructor.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

_MODULE = "transformers.utils.output_capturing"
_REGISTRY = "_CAN_RECORD_REGISTRY"
_FLAGS, _HOOKS = "_can_record_outputs", "_forward_hooks"
# The attribute of a model by which transformers remembers that it has installed the hooks.
ARE_INSTALLED = "_output_capturing_hooks_installed"


def is_capturing(hook: Callable[..., Any]) -> bool:
    """Return whether a hook is one of these."""
    return getattr(hook, "__module__", "") == _MODULE


def captures(module: nn.Module) -> bool:
    """Return whether a module is in transformers' registry, or has such hooks."""
    return _flags_of(type(module)) is not None or any(map(is_capturing, getattr(module, _HOOKS, {}).values()))


def without_capturing(state: Any) -> Any:
    """Return a module's state as it was before the hooks were installed; another state, of a class's own, as it is."""
    if not isinstance(state, Mapping) or _HOOKS not in state:
        return state
    hooks = OrderedDict((key, hook) for key, hook in state[_HOOKS].items() if not is_capturing(hook))
    return {**{name: value for name, value in state.items() if name != ARE_INSTALLED}, _HOOKS: hooks}


def registered(own: type[nn.Module]) -> nn.Module:
    """Return a module of this class without its state, and enter the class in transformers' registry."""
    flags, library = _flags_of(own), sys.modules.get(_MODULE)
    registry = getattr(library, _REGISTRY, None)
    if flags is not None and registry is not None:
        dict.__setitem__(registry, str(own), flags)  # its own method takes a model, in older versions a name
    return own.__new__(own)


def _flags_of(own: type[nn.Module]) -> Any:
    return getattr(own, _FLAGS, None)
