"""Let a model in double precision draw the same random numbers as in single precision."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# The operators that draw, by the beginnings of their names. Operators that also compute with given values, like
# dropout, are not included: on a CPU they draw the same in both precisions, and their values should stay exact.
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
    """Draws random numbers in single precision and converts them to double.

    From the same state of a generator, torch draws different numbers in different precisions.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Call the operator."""
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
    """Whether the operator makes a tensor of the default dtype, which is double precision in this mode."""
    if kwargs.get("dtype") is not None or "out" in kwargs:
        return False
    return name in ("rand", "randn") or (name == "normal" and not any(isinstance(arg, torch.Tensor) for arg in args))


def _narrowed(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64:
        return leaf.float()
    return torch.float32 if leaf is torch.float64 else leaf


def _widened(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32 else leaf
