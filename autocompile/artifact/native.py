"""A compiled program, run on the model's own weights."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.artifact.confirming import Confirmation, confirmation_of
from autocompile.artifact.watch import Watch, tensors_of
from autocompile.core.errors import InvalidArtifact
from autocompile.core.manifest import Program, Weight

# Calls in so many threads run at once; a program's runners share its weights.
_RUNNERS = 4


class WeightsDiffer(Exception):
    """The model's weights are not ones that the program can run on; says which."""


class NotLoadable(Exception):
    """Torch cannot load the package; says why."""


class _Binding:
    """A program on one set of weights. Weights that are changed in place are followed, as their memory is shared."""

    def __init__(
        self, program: Program, package: str, model: Any, watch: Watch, lifted: dict[str, torch.Tensor]
    ) -> None:
        self._watch, self._version = watch, watch.version
        self._registered = tensors_of(model)
        self._attributes: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._live: list[torch.Tensor] = []
        # Keeps the memory: the program holds addresses only.
        self._constants = {
            weight.name: lifted[weight.name] if weight.lifted else self._bound(weight, model)
            for weight in program.weights
        }
        self._addresses = self._look_where()
        self._layouts = Layouts(self._live)
        on_gpu = [constant.device.index for constant in self._constants.values() if constant.device.type == "cuda"]
        try:
            runner = runner_of(package, on_gpu[0] if on_gpu else -1)
            runner.load_constants(self._constants, use_inactive=False, check_full_update=True, user_managed=True)
        except RuntimeError as fault:
            raise NotLoadable(str(fault).splitlines()[0]) from fault
        self.run: Callable[[list[torch.Tensor]], list[torch.Tensor]] = runner.run

    def is_current(self) -> bool:
        """Whether the model still has the weights that this was bound to, in the same memory, laid out the same."""
        return self._has_its_tensors() and self._look_where() == self._addresses and self._layouts.hold()

    def _has_its_tensors(self) -> bool:
        """Looked at only after something was written to the model's modules."""
        version = self._watch.version
        if version == self._version:
            return True
        held = all(kept_in.get(name) is tensor for kept_in, name, tensor in self._attributes)
        if held and self._registered.hold():
            self._version = version
            return True
        return False

    def _look_where(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, self._live))

    def _bound(self, weight: Weight, model: Any) -> torch.Tensor:
        tensor = self._found(weight.path, model)
        dtype = getattr(torch, weight.dtype)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            raise WeightsDiffer(f"{weight.path} is a {type(tensor).__name__} of layout {tensor.layout}")
        if tuple(tensor.shape) != weight.shape or tensor.dtype is not dtype:
            raise WeightsDiffer(f"{weight.path} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {weight.shape}")
        if tensor.stride() != weight.stride:
            raise WeightsDiffer(f"{weight.path} has strides {tensor.stride()}, not {weight.stride}")
        for path in weight.tied:
            if self._found(path, model).data_ptr() != tensor.data_ptr():
                raise WeightsDiffer(f"{weight.path} and {path} were one tensor, and are two")
        return tensor.detach()

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


class Layouts:
    """Whether tensors are still laid out as they were: their sizes, strides and dtypes."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        # Torch's own check takes no tensor twice, which tied weights are.
        self._tensors = list({id(tensor): tensor for tensor in tensors}.values())
        self._state = self._look()
        self._confirms = {mode: self._confirmation(in_inference_mode=mode) for mode in (False, True)}

    def hold(self) -> bool:
        """Whether nothing has changed."""
        return self._confirms[torch.is_inference_mode_enabled()](*self._tensors) or self._look() == self._state

    def _confirmation(self, *, in_inference_mode: bool) -> Confirmation:
        with torch.inference_mode(in_inference_mode):
            return confirmation_of(self._tensors)

    def _look(self) -> list[Any]:
        return [(tensor.stride(), tensor.shape, tensor.dtype) for tensor in self._tensors]


class Native:
    """One compiled program and the model whose weights it takes; binds again when the model's tensors were replaced.

    `directory` is where its files lie, and have to stay; `watch` is the model's, asked before each call.
    Raises WeightsDiffer if the model's weights are not the program's, NotLoadable if the package is none.
    """

    def __init__(self, program: Program, directory: Path, model: Any, watch: Watch) -> None:
        self._program, self._model, self._watch = program, model, watch
        self._package = str(directory / program.file)
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
        return _Binding(self._program, self._package, self._model, self._watch, self._lifted)


def registered_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer by its path, tied ones under each of theirs."""
    if isinstance(model, nn.Module):
        yield from model.named_parameters(remove_duplicate=False)
        yield from model.named_buffers(remove_duplicate=False)


def _owner_of(model: Any, path: str) -> tuple[Any, str]:
    """The module that holds what lies at `path`, and under which name."""
    *parents, name = path.split(".")
    owner: Any = model
    for part in parents:
        owner = getattr(owner, part, None)
    return owner, name


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
    if all(is_tensor) and all(child.is_leaf() for child in spec.children()) and spec.type in pytree.SUPPORTED_NODES:
        unflatten, context = pytree.SUPPORTED_NODES[spec.type].unflatten_fn, spec.context
        return lambda tensors: unflatten(tensors, context)

    def assemble(tensors: list[torch.Tensor]) -> Any:
        following: Iterator[torch.Tensor] = iter(tensors)
        leaves = [next(following) if tensor else value for tensor, value in zip(is_tensor, fixed, strict=True)]
        return pytree.tree_unflatten(leaves, spec)

    return assemble
