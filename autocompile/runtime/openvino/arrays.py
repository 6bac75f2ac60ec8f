"""Load a stored program to run on NumPy arrays. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autocompile.core.errors import UsageError
from autocompile.core.program import Program, TensorGuard
from autocompile.host import usable_cores
from autocompile.runtime.array_guards import Array
from autocompile.runtime.files import Files
from autocompile.runtime.openvino.integers import is_within, too_large
from autocompile.runtime.openvino.library import core, openvino, options
from autocompile.runtime.openvino.package import package_of
from autocompile.runtime.openvino.requests import Requests


def load_arrays(program: Program, files: Files) -> ServedArrays:
    """Load a program. Raises the library's exceptions if it cannot be loaded, ValueError if its record is invalid."""
    return ServedArrays(program, files)


class ServedArrays:
    """One program."""

    def __init__(self, program: Program, files: Files) -> None:
        package = package_of(program)
        guards = [guard for guard in program.guards if isinstance(guard, TensorGuard)]
        without = [one for one in (*(guard.dtype for guard in guards), *package.dtypes) if one == "bfloat16"]
        if without:
            raise ValueError("it takes or returns bfloat16, which NumPy does not have")
        self._files, self._inputs, self._outputs, self._guards = files, package.inputs, package.outputs, guards
        self._most = package.most
        self._stored = np.memmap(files.path(package.file), dtype=np.uint8, mode="c")
        tensor = openvino().Tensor
        stored = tensor(self._stored, shared_memory=True)
        compiled = core().import_model(stored, "CPU", options(package.precision, package.threads or usable_cores()))
        self._requests = Requests(compiled, tensor, package.computed)

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on the arrays that the guard returned."""
        for guard, array, most in zip(self._guards, arrays, self._most, strict=True):
            if array.dtype == np.int64 and not is_within(array, most):
                raise UsageError(too_large(guard.path, most), where="load", remedy="load it with the model")
        made = self._requests.run([arrays[position] for position in self._inputs])
        return [made[output] for output in self._outputs]
