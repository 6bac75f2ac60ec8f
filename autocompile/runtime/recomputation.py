"""Recompute activations of a model's blocks in the backward pass instead of keeping them.

The method is from Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost. torch.utils.checkpoint does the
work; it draws the same random numbers again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autocompile.workload.attention import attention_as_now


class Recomputed:
    """A replacement for a module's `forward` that keeps only the arguments for the backward pass.

    It is an object, and its class is in a separate file, for two reasons. First, a copy of the module gets a copy of
    the object, which runs the copy. Second, the compiler traces it when a module is compiled on its own, while it does
    not trace torch's own files.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # the compiler decides in the forward pass what the backward pass computes
            return checkpoint(self.forward, *args, use_reentrant=False, **kwargs)
        return checkpoint(self.forward, *args, use_reentrant=False, context_fn=_as_before(), **kwargs)


def _as_before() -> Callable[[], tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
    """Return a source of the contexts of both computations, in which attention is computed in the same way."""
    again = attention_as_now()
    return lambda: (nullcontext(), again)


def recompute(module: nn.Module, paths: Sequence[str]) -> None:
    """Make the submodules at these paths recompute their activations. Those that already do so are not changed."""
    for path in paths:
        part = module.get_submodule(path)
        if not isinstance(part.forward, Recomputed):
            part.forward = Recomputed(part.forward)
