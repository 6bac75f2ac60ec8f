"""How a model travels to other processes: by cloudpickle, with what torch's own modules refuse.

A module with a parametrization (weight norm, spectral norm, as in wav2vec 2.0) has a class that torch makes for it, and
refuses to be pickled. It travels as its own class, its state, and the names of what is parametrized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cloudpickle
from torch import nn
from torch.nn.utils import parametrize


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """As cloudpickle's. `torch.save` takes this module in the place of pickle's."""

    def reducer_override(self, obj: Any) -> Any:
        """What an object is put together of again; NotImplemented for the usual way."""
        if isinstance(obj, nn.Module) and parametrize.is_parametrized(obj):
            module: Any = obj
            own: Any = type(obj).__bases__[0]
            return _parametrized, (own, tuple(module.parametrizations)), own.__getstate__(obj)
        return super().reducer_override(obj)


def _parametrized(own: type[nn.Module], names: Sequence[str]) -> nn.Module:
    """A module without its state, of a class like the one that torch has made for it."""
    module = own.__new__(own)
    parametrize._inject_new_class(module)  # noqa: SLF001  torch has no public way to do it without computing anything
    for name in names:
        parametrize._inject_property(module, name)  # noqa: SLF001
    return module
