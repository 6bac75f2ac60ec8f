"""Intercept the module calls that a program makes itself, but not those that one module makes of another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.jit import ScriptModule
from torch.jit._trace import is_tracing
from torch.utils import _pytree as pytree

# Makes a module call in place of the program. It takes the module, its arguments by position and by name, and the
# original function that makes the call. It may return LOOK_INSIDE instead of making the call.
Pass = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]
# The call is then made as usual, and the calls that it makes of other modules are passed as if they were outermost.
LOOK_INSIDE = object()


class _Depth(threading.local):
    inside = False


@contextmanager
def outermost_calls(passed: Pass) -> Iterator[None]:
    """Pass each outermost call of a module to `passed`. Calls within such a call are made as usual.

    This replaces `nn.Module.__call__`. Three kinds of calls are not seen: those of classes that override `__call__`,
    those of TorchScript modules, and those made while TorchScript or `torch.compile` is tracing. A call in another
    thread is outermost in that thread.
    """
    before, depth = nn.Module.__call__, _Depth()
    is_torchs_own = before is nn.Module._wrapped_call_impl  # noqa: SLF001

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # As `before` does it, with one Python frame less: there are many inner calls.
        if depth.inside and is_torchs_own and module._compiled_call_impl is None:  # noqa: SLF001
            return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]  # noqa: SLF001
        if depth.inside or isinstance(module, ScriptModule) or is_tracing():  # type: ignore[no-untyped-call]
            return before(module, *args, **kwargs)
        if torch.compiler.is_dynamo_compiling():  # it would compile `passed`, too
            return before(module, *args, **kwargs)
        depth.inside = True
        try:
            output = passed(module, args, kwargs, before)
        finally:
            depth.inside = False
        return before(module, *args, **kwargs) if output is LOOK_INSIDE else output

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = before  # type: ignore[method-assign]


def only_inner_calls_count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call cannot be tuned, but calls that it makes of other modules perhaps can be.

    This is a call without gradients and without a tensor that pytree finds among its arguments. For example,
    `SentenceTransformer.encode` calls the whole model with an object of transformers, and that calls an encoder with
    tensors.
    """
    if torch.is_grad_enabled() or any(isinstance(one, torch.Tensor) for one in (*args, *kwargs.values())):
        return False
    return not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((args, kwargs)))


def uncompiled(module: Any) -> Any:
    """Return the module that `torch.compile` was given, if this is its result.

    The compiler is not imported, because that takes a second.
    """
    if type(module).__name__ != "OptimizedModule":  # the quick answer
        return module
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(compiler, "OptimizedModule", None)
    return module._orig_mod if kind is not None and isinstance(module, kind) else module  # noqa: SLF001


def is_compiled_in_place(module: nn.Module) -> bool:
    """Return whether the method `compile` of the module, or of a module in it, was called."""
    return any(one._compiled_call_impl is not None for one in module.modules())  # noqa: SLF001  torch has no public way


def undo_compiling_in_place(module: nn.Module) -> None:
    """Undo calls of `compile`, of the module and of the modules in it."""
    for one in module.modules():
        vars(one).pop("_compiled_call_impl", None)  # a class attribute, None, remains


def has_compiled_forward(module: nn.Module) -> bool:
    """Return whether its `forward` was replaced by a result of `torch.compile`."""
    forward = vars(module).get("forward")
    return hasattr(forward, "_torchdynamo_orig_callable") and not getattr(forward, "_torchdynamo_disable", False)
