"""Load a stored program and run it on the memory of a call's tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from autocompile.core.program import Program, TensorGuard
from autocompile.runtime.base import NotLoadable
from autocompile.runtime.files import Files
from autocompile.runtime.openvino.integers import is_within, too_large
from autocompile.runtime.openvino.library import core, in_a_line, openvino, options
from autocompile.runtime.openvino.package import Package, package_of
from autocompile.runtime.openvino.requests import Requests
from autocompile.runtime.outputs import assembler

Array = NDArray[Any]
# Turns a tensor into an array on its memory.
_Feed = Callable[[torch.Tensor], Array]


class Served:
    """One program.

    The constructor raises NotLoadable if the library cannot load the program. A call raises it if the program cannot
    serve that call.
    """

    def __init__(self, program: Program, files: Files) -> None:
        try:
            package = package_of(program)
        except ValueError as fault:
            raise NotLoadable(f"its record cannot be read: {fault}") from fault
        self._files = files
        # The library does not keep the given memory alive. The mapping is copy-on-write, because the library accepts no
        # read-only memory. Nothing is ever written, so all processes share the file's pages.
        self._stored = np.memmap(files.path(package.file), dtype=np.uint8, mode="c")
        guards = [guard for guard in program.guards if isinstance(guard, TensorGuard)]
        self._feeds = [(position, _feed(guards[position], package.most[position])) for position in package.inputs]
        self._gives = [_giver(dtype) for dtype in package.dtypes]
        self._outputs = package.outputs
        self._is_in_order = package.outputs == tuple(range(len(package.dtypes)))
        self._assemble = assembler(program)
        self._requests = Requests(_loaded(self._stored, package), openvino().Tensor, package.computed)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """Run on the tensors that the guard returned."""
        fed = [feed(tensors[position]) for position, feed in self._feeds]
        try:
            made = self._requests.run(fed)
        except RuntimeError as fault:
            raise NotLoadable(f"OpenVINO cannot run it: {in_a_line(fault)}") from fault
        tensors = [as_tensor(array) for as_tensor, array in zip(self._gives, made, strict=True)]
        return self._assemble(tensors if self._is_in_order else [tensors[output] for output in self._outputs])


def _loaded(stored: Array, package: Package) -> Any:
    threads = package.threads or torch.get_num_threads()
    try:
        tensor = openvino().Tensor(stored, shared_memory=True)
        return core().import_model(tensor, "CPU", options(package.precision, threads))
    except RuntimeError as fault:
        raise NotLoadable(in_a_line(fault)) from fault


def _feed(guard: TensorGuard, most: int) -> _Feed:
    is_contiguous = guard.layout == "contiguous"

    def plain(tensor: torch.Tensor) -> Array:
        own = tensor.detach() if tensor.requires_grad else tensor
        return (own if is_contiguous else own.contiguous()).numpy()

    def without_numpy(tensor: torch.Tensor) -> Array:
        return tensor.detach().contiguous().view(torch.int16).numpy()

    def within_32_bits(tensor: torch.Tensor) -> Array:
        array = plain(tensor)
        if not is_within(array, most):
            raise NotLoadable(too_large(guard.path, most))
        return array

    return {"int64": within_32_bits, "bfloat16": without_numpy}.get(guard.dtype, plain)


def _giver(dtype: str) -> Callable[[Array], torch.Tensor]:
    """Return a function that makes a tensor from an output, on the same memory. NumPy sees bfloat16 as float16."""
    if dtype == "bfloat16":
        return lambda array: torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy
