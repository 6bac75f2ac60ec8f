"""A compiled program, bound to the tensors that a model has now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from autocompile.runtime.aot.package import Package, Weight
from autocompile.runtime.aot.placement import placement_of
from autocompile.runtime.aot.runner import Runners
from autocompile.runtime.base import WeightsDiffer
from autocompile.runtime.devices import GPU_ALIGNMENT, is_misaligned
from autocompile.runtime.model_watch import Watch, tensors_of


class Binding:
    """A program on one set of weights. Weights that are changed in place are followed, as their memory is shared.

    `library`: the compiled check of where they lie, or None. `own`: the program's constants. `devices`: where the
    weights were before, by path; noted where they are new.
    Raises WeightsDiffer and NotLoadable.
    """

    def __init__(
        self,
        package: Package,
        library: Path | None,
        runners: Runners,
        model: Any,
        watch: Watch,
        own: Mapping[str, torch.Tensor],
        devices: dict[str, torch.device],
    ) -> None:
        self._devices = devices
        self._watch, self._seen = watch, watch.state
        self._registered = tensors_of(model)
        self._attributes: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._live: list[torch.Tensor] = []
        found = {weight.name: self._fitting(weight, model) for weight in package.weights}
        # Noted before anything is bound: what another thread moves in between is seen at the next call.
        self._lie_as_they_did = placement_of(self._live, library)
        # Keeps the memory: the program has addresses only.
        self._constants = {**own, **{name: tensor.detach() for name, tensor in found.items()}}
        self.run = runners.bound(self._constants, self)

    def is_current(self) -> bool:
        """Whether the model still has the weights that this was bound to, in the same memory, laid out the same."""
        return bool((self._watch.state is self._seen or self._has_its_tensors()) and self._lie_as_they_did())

    def _has_its_tensors(self) -> bool:
        """Looked at only after something was written to the model's modules."""
        state = self._watch.state
        held = all(kept_in.get(name) is tensor for kept_in, name, tensor in self._attributes)
        if held and self._registered.hold():
            self._seen = state
            return True
        return False

    def _fitting(self, weight: Weight, model: Any) -> torch.Tensor:
        tensor = self._found(weight.path, model)
        dtype = getattr(torch, weight.dtype)
        if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            raise WeightsDiffer(f"{weight.path} is a {type(tensor).__name__} of layout {tensor.layout}")
        if tensor.device != self._devices.setdefault(weight.path, tensor.device):
            raise WeightsDiffer(f"{weight.path} is on {tensor.device}, and was on {self._devices[weight.path]}")
        if tensor.device.type != weight.device_type:
            raise WeightsDiffer(f"{weight.path} is on {tensor.device}, and was on {weight.device_type} when packed")
        if is_misaligned(tensor):
            said = f"{weight.path} does not start at a multiple of {GPU_ALIGNMENT} bytes, as GPU kernels need it"
            raise WeightsDiffer(said)
        if tensor.is_conj() or tensor.is_neg():
            raise WeightsDiffer(f"{weight.path} is a view that is conjugated or negated when it is read")
        if tuple(tensor.shape) != weight.shape or tensor.dtype is not dtype:
            raise WeightsDiffer(f"{weight.path} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {weight.shape}")
        if tensor.stride() != weight.stride:
            raise WeightsDiffer(f"{weight.path} has strides {tensor.stride()}, not {weight.stride}")
        for path in weight.tied:
            if self._found(path, model).data_ptr() != tensor.data_ptr():
                raise WeightsDiffer(f"{weight.path} and {path} were one tensor, and are two")
        return tensor

    def _found(self, path: str, model: Any) -> torch.Tensor:
        owner, name = _owner_of(model, path)
        for kept_in in (owner._parameters, owner._buffers, vars(owner)) if isinstance(owner, nn.Module) else ():  # noqa: SLF001
            tensor = kept_in.get(name)
            if isinstance(tensor, torch.Tensor):
                self._live.append(tensor)
                if kept_in is vars(owner):
                    self._attributes.append((kept_in, name, tensor))
                return tensor
        raise WeightsDiffer(f"there is no {path}")


def _owner_of(model: Any, path: str) -> tuple[Any, str]:
    """The module that holds what lies at `path`, and under which name."""
    *parents, name = path.split(".")
    owner: Any = model
    for part in parents:
        owner = getattr(owner, part, None)
    return owner, name
