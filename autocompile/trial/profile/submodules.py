"""Follow which submodule is running, with temporary hooks around every forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def following(root: nn.Module | None, enter: Callable[[str], None], leave: Callable[[], None]) -> Iterator[None]:
    """Call `enter(path)` and `leave()` around the forward of every submodule of `root`. If `root` is None, do nothing.

    A scripted module does not accept hooks, so it counts as part of its parent.
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
