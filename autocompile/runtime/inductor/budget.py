"""The compiler's budget for activations, for what is compiled by one call and nothing else in the process.

Torch's setting is of the whole process, and what it does to other models nobody has verified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Budgeted:
    """A compiled callable, which compiles within a budget when it does: the share of activations that may be kept."""

    def __init__(self, call: Callable[..., Any], share: float) -> None:
        self._call, self._share = call, share

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch._functorch.config as functorch  # noqa: PLC0415  only what compiles may import the compiler

        with functorch.patch(activation_memory_budget=self._share):
            return self._call(*args, **kwargs)
