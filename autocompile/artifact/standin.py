"""A stand-in for a model: the same object to its own methods, but that calling it is served by the artifact.

A method like `generate` calls `self(...)`. Run on the stand-in, these calls go where the module's own go: to the
compiled program if they fit it, else to the model. Neither the model nor its class is touched, so this holds in every
thread, and the model, when it serves as the fallback, does not come back here.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from autocompile.artifact.serving import Server


class _StandIn:
    """The first base of a stand-in's class, before the model's."""

    def __init_subclass__(cls, **_options: Any) -> None:
        """Nothing: a model's class that keeps a list of its subclasses does not hear of this one."""


def stand_in(model: Any, server: Server, methods: Mapping[str, Callable[..., Any] | None] | None = None) -> Any:
    """An object of a subclass of the model's class, with the model's own dictionary, whose calls are served.

    `methods`: what else its class has instead of the model's class. None for an object that keeps more than a
    dictionary, or whose class cannot be derived from.
    """
    kind, own = type(model), {name: method for name, method in (methods or {}).items() if method is not None}
    if not hasattr(model, "__dict__") or any(_slots_of(base) for base in kind.__mro__):
        return None
    try:
        made = types.new_class(
            kind.__name__, (_StandIn, kind), exec_body=lambda body: body.update({**_body(model, server), **own})
        )
        standing: Any = object.__new__(made)
        object.__setattr__(standing, "__dict__", vars(model))
    except TypeError:
        return None
    return standing


def _body(model: Any, server: Server) -> dict[str, Any]:
    """What the class has of its own."""
    kind = type(model)

    def call(_self: Any, *args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs) if torch.compiler.is_compiling() else server(args, kwargs)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Called by name, `forward` runs no hooks of the model's own, which a call that is served eager would.
        hooked = model._forward_hooks or model._forward_pre_hooks  # noqa: SLF001
        return kind.forward(model, *args, **kwargs) if hooked else call(self, *args, **kwargs)

    body: dict[str, Any] = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__call__": functools.wraps(kind.__call__)(call),
        # `type(self)(...)`, a copy and a pickle are another model, which nothing was compiled for.
        "__new__": lambda _cls, *args, **kwargs: kind(*args, **kwargs),
        "__copy__": lambda _self: copy.copy(model),
        "__deepcopy__": lambda _self, memo: copy.deepcopy(model, memo),
        "__reduce_ex__": lambda _self, protocol: model.__reduce_ex__(protocol),
    }
    if isinstance(model, nn.Module):
        body["forward"] = functools.wraps(kind.forward)(forward)
    return body


def _slots_of(kind: type) -> set[str]:
    """Where its objects keep something beside their dictionary."""
    slots = vars(kind).get("__slots__", ())
    return {slots} if isinstance(slots, str) else set(slots) - {"__dict__", "__weakref__"}
