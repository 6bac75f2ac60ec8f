"""A stored program, loaded for NumPy arrays. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from autocompile.core.errors import UsageError
from autocompile.core.program import Program, TensorGuard
from autocompile.host import usable_cores
from autocompile.runtime.array_guards import Array
from autocompile.runtime.files import Files
from autocompile.runtime.openvino.integers import is_within, too_large
from autocompile.runtime.openvino.library import core, openvino, options
from autocompile.runtime.openvino.package import package_of


def load_arrays(program: Program, files: Files) -> ServedArrays:
    """What serves a program. Raises what the library raises that cannot load it, ValueError for a strange record."""
    return ServedArrays(program, files)


class ServedArrays:
    """One program. Calls in several threads at once have a request each."""

    def __init__(self, program: Program, files: Files) -> None:
        package = package_of(program)
        guards = [guard for guard in program.guards if isinstance(guard, TensorGuard)]
        without = [one for one in (*(guard.dtype for guard in guards), *package.dtypes) if one == "bfloat16"]
        if without:
            raise ValueError("it takes or gives bfloat16, which NumPy has not")
        self._files, self._inputs, self._outputs, self._guards = files, package.inputs, package.outputs, guards
        self._count, self._most = len(package.dtypes), package.most
        self._stored = np.memmap(files.path(package.file), dtype=np.uint8, mode="c")
        self._tensor = openvino().Tensor
        stored = self._tensor(self._stored, shared_memory=True)
        self._compiled = core().import_model(
            stored, "CPU", options(package.precision, package.threads or usable_cores())
        )
        self._free: deque[Any] = deque()

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on the arrays that the guard gave."""
        for guard, array, most in zip(self._guards, arrays, self._most, strict=True):
            if array.dtype == np.int64 and not is_within(array, most):
                raise UsageError(too_large(guard.path, most), where="load", remedy="load it with the model")
        given = [array if array.flags.writeable else array.copy() for array in arrays]  # it takes no other memory
        try:
            request = self._free.pop()
        except IndexError:  # all are under way
            request = self._compiled.create_infer_request()
        for index, position in enumerate(self._inputs):
            request.set_input_tensor(index, self._tensor(given[position], shared_memory=True))
        request.infer(None, share_outputs=True)
        made = [np.array(request.get_output_tensor(index).data) for index in range(self._count)]
        self._free.append(request)
        return [made[output] for output in self._outputs]
