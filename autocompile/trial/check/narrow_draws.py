"""The random numbers of a model in single precision, for what computes the same in double precision."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# What draws, by the beginning of its name. What also computes with the values that it is given, as dropout does, is not
# among them: it draws alike in both precisions on a CPU, and its values are to stay exact.
_DRAWING = (
    "rand",
    "normal",
    "uniform",
    "bernoulli",
    "exponential",
    "geometric",
    "log_normal",
    "cauchy",
    "multinomial",
    "poisson",
    "binomial",
    "_standard_gamma",
    "_sample_dirichlet",
)


class NarrowDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Where double precision would be drawn, single precision is, and made double.

    From one state of a generator, torch draws other numbers in another precision.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Call it."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if not name.startswith(_DRAWING):
            return func(*args, **kwargs)
        narrow_args, narrow = pytree.tree_map(_narrowed, (args, kwargs))
        if _makes_default(name, args, kwargs):
            narrow["dtype"] = torch.float32
        drawn = func(*narrow_args, **narrow)
        into = args[0] if name.endswith("_") else kwargs.get("out")
        if into is not None:
            return into.copy_(drawn)
        return pytree.tree_map(_widened, drawn)


def _makes_default(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether it makes a tensor of the default dtype, which is double precision meanwhile."""
    if kwargs.get("dtype") is not None or "out" in kwargs:
        return False
    return name in ("rand", "randn") or (name == "normal" and not any(isinstance(arg, torch.Tensor) for arg in args))


def _narrowed(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64:
        return leaf.float()
    return torch.float32 if leaf is torch.float64 else leaf


def _widened(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32 else leaf
