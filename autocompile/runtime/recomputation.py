"""Activations of a model's blocks, computed again in the backward pass instead of being kept.

Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost; done by torch.utils.checkpoint, which draws the same
random numbers again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


class Recomputed:
    """A module's `forward`, of which only the arguments are kept for the backward pass.

    It is an object of a class in a file of its own for two reasons. A copy of the module gets a copy of it, which runs
    the copy. And the compiler traces it where a module is compiled by itself, as it does not trace torch's own files.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(self.forward, *args, use_reentrant=False, **kwargs)


def recompute(module: nn.Module, paths: Sequence[str]) -> None:
    """Have the submodules of these paths recompute their activations; who does so already goes on as it is."""
    for path in paths:
        part = module.get_submodule(path)
        if not isinstance(part.forward, Recomputed):
            part.forward = Recomputed(part.forward)
