"""The tensors of a model of which a program may have copies, by name.

These are its parameters, its buffers, the tensors that are attributes of its modules, and the tensors that are globals
or closures of the user's code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from autocompile.core.identity import Identity
from autocompile.runtime.model_watch import registered_tensors
from autocompile.workload.identity.facts import outside_tensors

_IMAGE = 4  # dimensions
_NONE: Mapping[str, Callable[[], Any]] = MappingProxyType({})


class HeldTensors:
    """A model's tensors, looked up again each time.

    `packed`: the names of the tensors that were packed, if they are known. Without variables of code among them, the
    code is not searched for them, which would take some milliseconds. `identity` is the model's as it was packed. With
    `only_images`, parameters and buffers of other than four dimensions are left out.
    """

    def __init__(
        self,
        model: Any,
        *,
        packed: Collection[str] | None = None,
        identity: Identity | None = None,
        only_images: bool = False,
    ) -> None:
        self._model, self._only_images = model, only_images
        has_variables = packed is None or any(map(_is_variable, packed))
        self._variables = outside_tensors(model, identity) if has_variables else _NONE

    def named(self) -> dict[str, torch.Tensor]:
        """Return the tensors by path, and those in variables by function and name."""
        held = dict(_tensors_of(self._model)) | dict(self.variables())
        if self._only_images:
            left_out = {path for path, tensor in registered_tensors(self._model) if tensor.dim() != _IMAGE}
            held = {path: tensor for path, tensor in held.items() if path not in left_out}
        return held

    def variables(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors in variables of the code."""
        for name, read in self._variables.items():
            if isinstance(held := read(), torch.Tensor):
                yield name, held


def _tensors_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every parameter, every buffer, and every tensor that is a plain attribute of a module, by path."""
    yield from registered_tensors(model)
    for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


def _is_variable(name: str) -> bool:
    return re.search(r"\)(#\d+)?$", name) is not None
