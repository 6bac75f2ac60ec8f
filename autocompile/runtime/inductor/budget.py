"""The compiler's memory budget for activations, limited to what one call compiles.

Torch's setting applies to the whole process, and its effect on other models was not verified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Budgeted:
    """A compiled callable that compiles under a budget: the share of activations that the compiler may keep."""

    def __init__(self, call: Callable[..., Any], share: float) -> None:
        self._call, self._share = call, share

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch._functorch.config as functorch  # noqa: PLC0415  production must not import it

        with functorch.patch(activation_memory_budget=self._share):
            return self._call(*args, **kwargs)
