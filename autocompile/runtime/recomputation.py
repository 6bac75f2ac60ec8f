"""Recompute activations of a model's blocks in the backward pass instead of keeping them.

The method is from Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost. torch.utils.checkpoint does the
work; it draws the same random numbers again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


class Recomputed:
    """A replacement for a module's `forward` that keeps only the arguments for the backward pass.

    It is an object, and its class is in a separate file, for two reasons. First, a copy of the module gets a copy of
    the object, which runs the copy. Second, the compiler traces it when a module is compiled on its own, while it does
    not trace torch's own files.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(self.forward, *args, use_reentrant=False, **kwargs)


def recompute(module: nn.Module, paths: Sequence[str]) -> None:
    """Make the submodules at these paths recompute their activations. Those that already do so are not changed."""
    for path in paths:
        part = module.get_submodule(path)
        if not isinstance(part.forward, Recomputed):
            part.forward = Recomputed(part.forward)
