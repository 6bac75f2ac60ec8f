"""A stand-in for a model: methods see the same object, but calls of it are served by the artifact.

A method like `generate` calls `self(...)`. If it runs on the stand-in, these calls are served like calls of the loaded
module: by the compiled program if they fit it, else by the model. Neither the model nor its class is changed. Therefore
this works in every thread, and the model does not call the stand-in when it serves as the fallback.
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
    """The first base class of a stand-in's class, before the model's class."""

    def __init_subclass__(cls, **_options: Any) -> None:
        """Do nothing, so that a model's class that registers its subclasses does not register this one."""


def stand_in(model: Any, server: Server, methods: Mapping[str, Callable[..., Any] | None] | None = None) -> Any:
    """Return an object of a subclass of the model's class, with the model's own `__dict__`, whose calls are served.

    `methods`: further methods that the subclass overrides. Returns None for an object that has more than a `__dict__`,
    or whose class cannot be subclassed.
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
    """Return the body of the subclass."""
    kind = type(model)

    def call(_self: Any, *args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs) if torch.compiler.is_compiling() else server(args, kwargs)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A direct call of `forward` runs no hooks of the model, but a call that is served eager would run them.
        hooked = model._forward_hooks or model._forward_pre_hooks  # noqa: SLF001
        return kind.forward(model, *args, **kwargs) if hooked else call(self, *args, **kwargs)

    body: dict[str, Any] = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__call__": functools.wraps(kind.__call__)(call),
        # `type(self)(...)`, a copy and a pickle create another model, for which no program was compiled.
        "__new__": lambda _cls, *args, **kwargs: kind(*args, **kwargs),
        "__copy__": lambda _self: copy.copy(model),
        "__deepcopy__": lambda _self, memo: copy.deepcopy(model, memo),
        "__reduce_ex__": lambda _self, protocol: model.__reduce_ex__(protocol),
    }
    if isinstance(model, nn.Module):
        body["forward"] = functools.wraps(kind.forward)(forward)
    return body


def _slots_of(kind: type) -> set[str]:
    """Return the slots in which objects of this class store something outside of their `__dict__`."""
    slots = vars(kind).get("__slots__", ())
    return {slots} if isinstance(slots, str) else set(slots) - {"__dict__", "__weakref__"}
