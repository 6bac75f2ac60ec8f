"""Replace random numbers by the middle of their range, so that results do not depend on random draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


def _integer(*bounds: Any) -> int:
    low, high = (0, *bounds)[-2:]
    return int((low + high) // 2)


# The value that replaces the draws of each operator, as a function of its arguments.
_MIDDLE: dict[Any, Callable[..., Any]] = {
    _aten.bernoulli_.float: lambda _tensor, p=0.5, **_: p,
    _aten.uniform_.default: lambda _tensor, low=0.0, high=1.0, **_: (low + high) / 2,
    _aten.normal_.default: lambda _tensor, mean=0.0, *_args, **_: mean,
    _aten.rand.default: lambda *_args, **_: 0.5,
    _aten.rand_like.default: lambda *_args, **_: 0.5,
    _aten.randn.default: lambda *_args, **_: 0.0,
    _aten.randn_like.default: lambda *_args, **_: 0.0,
    _aten.randint.default: lambda high, *_args, **_: _integer(high),
    _aten.randint.low: lambda low, high, *_args, **_: _integer(low, high),
    _aten.randint_like.default: lambda _tensor, high, **_: _integer(high),
    _aten.randint_like.low_dtype: lambda _tensor, low, high, **_: _integer(low, high),
}


class Settled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes random operators return the same for every sample of a batch of any size. Dropout drops nothing.

    This covers torch's operators that draw independent numbers. Others, such as permutations, still draw.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the operator."""
        kwargs = kwargs or {}
        if func is _aten.native_dropout.default:
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if func is _aten.bernoulli.default:
            return args[0].clone()
        drawn = func(*args, **kwargs)
        return drawn.fill_(_MIDDLE[func](*args, **kwargs)) if func in _MIDDLE else drawn
