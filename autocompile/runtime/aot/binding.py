"""Bind a compiled program to the tensors that a model has at present."""

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
    """A program bound to one set of weights.

    It follows changes of the weights in place, because it shares their memory. `library` is the compiled check of the
    weights' addresses, or None. `own` are the program's own constants. `devices` are the earlier devices of the
    weights, by path; new weights are added to it. Raises WeightsDiffer and NotLoadable.
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
        # Recorded before the weights are bound, so that the next call detects what another thread moves in between.
        self._lie_as_they_did = placement_of(self._live, library)
        # Keeps the memory alive, because the program has only addresses.
        self._constants = {**own, **{name: tensor.detach() for name, tensor in found.items()}}
        self.run = runners.bound(self._constants, self)

    def is_current(self) -> bool:
        """Return whether the model still has the bound weights, in the same memory and with the same layout."""
        return bool((self._watch.state is self._seen or self._has_its_tensors()) and self._lie_as_they_did())

    def _has_its_tensors(self) -> bool:
        """Return whether the model's modules hold the bound tensors.

        Called only after a write to one of the modules.
        """
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
            raise WeightsDiffer(f"{weight.path} is on {tensor.device}, but was on {self._devices[weight.path]}")
        if tensor.device.type != weight.device_type:
            raise WeightsDiffer(f"{weight.path} is on {tensor.device}, but was on {weight.device_type} when packed")
        if is_misaligned(tensor):
            said = f"{weight.path} does not start at a multiple of {GPU_ALIGNMENT} bytes, as GPU kernels require"
            raise WeightsDiffer(said)
        if tensor.is_conj() or tensor.is_neg():
            raise WeightsDiffer(f"{weight.path} is a conjugated or negated view")
        if tuple(tensor.shape) != weight.shape or tensor.dtype is not dtype:
            raise WeightsDiffer(f"{weight.path} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {weight.shape}")
        if tensor.stride() != weight.stride:
            raise WeightsDiffer(f"{weight.path} has strides {tensor.stride()}, not {weight.stride}")
        for path in weight.tied:
            if self._found(path, model).data_ptr() != tensor.data_ptr():
                raise WeightsDiffer(f"{weight.path} and {path} were one tensor, but are now two")
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
    """Return the module that holds the tensor at `path`, and the tensor's name in it."""
    *parents, name = path.split(".")
    owner: Any = model
    for part in parents:
        owner = getattr(owner, part, None)
    return owner, name
