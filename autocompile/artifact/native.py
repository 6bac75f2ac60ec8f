"""A compiled program, run on the model's own weights."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.core.errors import InvalidArtifact
from autocompile.core.manifest import Program, Weight

# Calls in so many threads run at once; a program's runners share its weights.
_RUNNERS = 4


class WeightsDiffer(Exception):
    """The model's weights are no longer ones that the program can run on; says which."""


@dataclass(frozen=True)
class _Slot:
    """Where the model keeps a tensor: the dictionary, the name in it, and what lay there and where in memory."""

    kept_in: dict[str, Any]
    name: str
    tensor: torch.Tensor
    address: int

    def holds(self) -> bool:
        return self.kept_in.get(self.name) is self.tensor and self.tensor.data_ptr() == self.address


class _Binding:
    """A program on one set of weights. Weights that are changed in place are followed, as their memory is shared.

    A weight whose strides are not the program's is copied; a copy knows the version that it was made of.
    """

    def __init__(self, program: Program, directory: Path, model: Any, lifted: dict[str, torch.Tensor]) -> None:
        self._slots: list[_Slot] = []
        self._copied: list[tuple[torch.Tensor, int]] = []
        constants = {}
        for weight in program.weights:
            constants[weight.name] = lifted[weight.name] if weight.lifted else self._live(weight, model)
        # Keeps the memory: the program holds addresses only.
        self._constants = constants
        package = str(directory / program.file)
        device = next((c.device for c in constants.values() if c.device.type == "cuda"), None)
        index = -1 if device is None or device.index is None else device.index
        runner = runner_of(package, index)
        runner.load_constants(constants, use_inactive=False, check_full_update=True, user_managed=True)
        self.run: Callable[[list[torch.Tensor]], list[torch.Tensor]] = runner.run

    def is_current(self) -> bool:
        """Whether the model still has the weights that this was bound to."""
        for slot in self._slots:
            if not slot.holds():
                return False
        return all(tensor._version == version for tensor, version in self._copied)  # noqa: SLF001

    def _live(self, weight: Weight, model: Any) -> torch.Tensor:
        slot = _slot_of(model, weight.path)
        live = slot.tensor.detach()
        dtype = getattr(torch, weight.dtype)
        if tuple(live.shape) != weight.shape or live.dtype is not dtype:
            raise WeightsDiffer(f"{weight.path} is {live.dtype} {tuple(live.shape)}, not {dtype} {weight.shape}")
        self._slots.append(slot)
        if live.stride() == weight.stride:
            return live
        self._copied.append((slot.tensor, slot.tensor._version))  # noqa: SLF001
        return torch.empty_strided(weight.shape, weight.stride, dtype=dtype, device=live.device).copy_(live)


class Native:
    """One compiled program and the model whose weights it takes; binds again when the model's tensors were replaced."""

    def __init__(self, program: Program, directory: Path, model: Any) -> None:
        self._program, self._directory, self._model = program, directory, model
        self._lifted = _read_constants(program, directory)
        self._binding = self._bind()
        self._binding_again = threading.Lock()
        self._assemble = _assembler(program)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """Run on the tensors that the guard gave. Raises WeightsDiffer if the model's weights do not fit any more."""
        binding = self._binding
        if not binding.is_current():
            binding = self._renewed()
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._assemble(binding.run(tensors))
        return self._assemble(binding.run(tensors))

    def _renewed(self) -> _Binding:
        with self._binding_again:
            if not self._binding.is_current():
                self._binding = self._bind()
            return self._binding

    def _bind(self) -> _Binding:
        return _Binding(self._program, self._directory, self._model, self._lifted)


def _slot_of(model: Any, path: str) -> _Slot:
    owner_path, _, name = path.rpartition(".")
    owner: Any = model
    for part in owner_path.split(".") if owner_path else ():
        owner = getattr(owner, part, None)
    if isinstance(owner, nn.Module):
        for kept_in in (owner._parameters, owner._buffers, vars(owner)):  # noqa: SLF001
            tensor = kept_in.get(name)
            if isinstance(tensor, torch.Tensor):
                return _Slot(kept_in, name, tensor, tensor.data_ptr())
    raise WeightsDiffer(f"there is no {path}")


def runner_of(package: str, index: int = -1) -> Any:
    """What runs a package: torch's own class; `index` is the CUDA device's, -1 for the current one.

    The public `torch._inductor.aoti_load_package` is not used where the class beneath it is there: it
    imports the compiler, and looks for a C++ compiler to probe the processor with.
    """
    loader = getattr(getattr(torch._C, "_aoti", None), "AOTIModelPackageLoader", None)  # noqa: SLF001
    if loader is not None:
        return loader(package, "model", False, _RUNNERS, index)
    import torch._inductor as inductor  # noqa: PLC0415  only where there is no other way

    return inductor.aoti_load_package(package, device_index=index).loader


def _read_constants(program: Program, directory: Path) -> dict[str, torch.Tensor]:
    if not program.constants_file:
        return {}
    from safetensors.torch import load_file  # noqa: PLC0415  few programs have constants of their own

    found = load_file(directory / program.constants_file)
    missing = [weight.name for weight in program.weights if weight.lifted and weight.name not in found]
    if missing:
        raise InvalidArtifact(f"has no constant {missing[0]}", where=os.fspath(directory / program.constants_file))
    return found


def _assembler(program: Program) -> Callable[[list[torch.Tensor]], Any]:
    """Puts the program's tensors into the structure that the model returns."""
    spec = pytree.treespec_loads(program.output_spec)
    fixed = [None if literal is None else ast.literal_eval(literal) for literal in program.outputs]
    is_tensor = [literal is None for literal in program.outputs]
    if spec.is_leaf():
        return lambda tensors: tensors[0]
    if all(is_tensor) and spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return tuple
    if all(is_tensor):
        return lambda tensors: pytree.tree_unflatten(tensors, spec)

    def assemble(tensors: list[torch.Tensor]) -> Any:
        following: Iterator[torch.Tensor] = iter(tensors)
        leaves = [next(following) if tensor else value for tensor, value in zip(is_tensor, fixed, strict=True)]
        return pytree.tree_unflatten(leaves, spec)

    return assemble
