"""Which submodule is running: hooks around every forward, for as long as somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def following(root: nn.Module | None, enter: Callable[[str], None], leave: Callable[[], None]) -> Iterator[None]:
    """Have `enter(path)` and `leave()` called around the forward of every submodule; None has none.

    A scripted module takes no hooks, and is part of the one around it.
    """
    handles = []
    for path, module in root.named_modules() if root is not None else ():
        if isinstance(module, torch.jit.ScriptModule):
            continue
        handles.append(module.register_forward_pre_hook(lambda *_call, path=path: enter(path)))
        handles.append(module.register_forward_hook(lambda *_call: leave(), always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
