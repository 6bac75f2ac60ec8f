"""Run a compiled program on the model's own weights, or on its own constants."""

from __future__ import annotations

import threading
from typing import Any

import torch

from autocompile.core.program import Program
from autocompile.runtime.aot.binding import Binding
from autocompile.runtime.aot.constants import Mapped
from autocompile.runtime.aot.package import Package, package_of
from autocompile.runtime.aot.runner import Code, Runners, bind
from autocompile.runtime.base import Loaded, NotLoadable
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import Watch, registered_tensors
from autocompile.runtime.outputs import assembler


def loaded(program: Program, files: Files, model: Any, watch: Watch) -> Loaded:
    """Return a function that runs a program. `watch` is the model's `Watch`, which is checked before each call.

    All processes that load the program share its code, on a CPU, and its constants, which are mapped from its files.
    After loading, the files are no longer needed. Raises WeightsDiffer if the model's weights do not fit the program,
    NotLoadable if it cannot be loaded.
    """
    try:
        package = package_of(program)
    except ValueError as fault:
        raise NotLoadable(f"its record cannot be read: {fault}") from fault
    if package.weights:
        return OnWeights(program, package, files, model, watch)
    return OnConstants(program, package, files, model)


class OnConstants:
    """A program that uses nothing from the model."""

    def __init__(self, program: Program, package: Package, files: Files, model: Any) -> None:
        gpu = _gpu_of(model)
        self._own = Mapped(package, files)
        # Keeps the constants alive, because the program has only their addresses.
        self._constants = self._own.tensors(gpu)
        self._code = Code(package, files)
        runner = self._code.runner(gpu)
        if not package.is_closed:
            bind(runner, self._constants)
        self._run = self._code.run_by(runner, gpu)
        self._assemble = assembler(program)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """Run on the tensors that the guard returned."""
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._assemble(self._run(tensors))
        return self._assemble(self._run(tensors))


class OnWeights:
    """A program on the model's weights. It is bound again after the model's tensors were replaced."""

    def __init__(self, program: Program, package: Package, files: Files, model: Any, watch: Watch) -> None:
        self._package, self._model, self._watch = package, model, watch
        # The devices of the weights when the program was loaded.
        self._devices: dict[str, torch.device] = {}
        self._library = files.path(package.placement_file) if package.placement_file else None
        self._own = Mapped(package, files)
        self._constants = self._own.tensors(_gpu_of(model))
        self._runners = Runners(Code(package, files), _gpu_of(model))
        self._binding = self._bind()
        self._binding_again = threading.Lock()
        self._assemble = assembler(program)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """Run on the tensors that the guard returned. Raises WeightsDiffer if the model's weights no longer fit."""
        binding = self._binding
        if not binding.is_current():
            binding = self._renewed()
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._assemble(binding.run(tensors))
        return self._assemble(binding.run(tensors))

    def _renewed(self) -> Binding:
        with self._binding_again:
            if not self._binding.is_current():
                self._binding = self._bind()
            return self._binding

    def _bind(self) -> Binding:
        return Binding(
            self._package, self._library, self._runners, self._model, self._watch, self._constants, self._devices
        )


def _gpu_of(model: Any) -> int:
    """Return the index of the model's GPU, or -1 for the current GPU if the model is on none."""
    devices = (tensor.device for _path, tensor in registered_tensors(model))
    return next((device.index for device in devices if device.type == "cuda"), -1)
