"""The calls of modules that a program makes itself, and not one module of another: each passes by a function."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.jit import ScriptModule
from torch.jit._trace import is_tracing

# Makes a call of a module in the program's place: of the module, its arguments, and what calls it as it is.
Pass = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


class _Depth(threading.local):
    inside = False


@contextmanager
def outermost_calls(passed: Pass) -> Iterator[None]:
    """Hand each outermost call of a module to `passed`; calls within one are made as ever.

    It replaces `nn.Module.__call__`, which a class may have overridden: calls of such are not seen, nor are those of
    TorchScript, nor what is traced for it. A call in another thread is outermost there.
    """
    before, depth = nn.Module.__call__, _Depth()

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if depth.inside or isinstance(module, ScriptModule) or is_tracing():  # type: ignore[no-untyped-call]
            return before(module, *args, **kwargs)
        depth.inside = True
        try:
            return passed(module, args, kwargs, before)
        finally:
            depth.inside = False

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = before  # type: ignore[method-assign]


def uncompiled(module: Any) -> Any:
    """What `torch.compile` was given, where it is that; asking imports no compiler, which takes a second."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(compiler, "OptimizedModule", None)
    return module._orig_mod if kind is not None and isinstance(module, kind) else module  # noqa: SLF001
