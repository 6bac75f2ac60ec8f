"""Run a compiled model on arrays. Its outputs belong to the caller. Does not import torch.

After a call of the library, nothing of this code is in the processor's caches, and each further operation in Python
takes 10 to 20 microseconds. Therefore inputs and outputs keep their memory from call to call where they can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autocompile.runtime.openvino.results import Result, result

Array = NDArray[Any]
# Smaller inputs are copied, because this takes less time than to give the library other memory.
_LARGE_BYTES = 16 * 1024


class Requests:
    """A compiled model and requests to run it. Concurrent calls in several threads use one request each.

    `tensor` is the library's class of tensors. `is_computed` is for each output whether the library only computes into
    its memory (`results.computed`).
    """

    def __init__(self, compiled: Any, tensor: Any, is_computed: Sequence[bool]) -> None:
        self._compiled, self._tensor, self._is_computed = compiled, tensor, tuple(is_computed)
        self._free: deque[_Request] = deque()

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run the model on contiguous arrays. NumPy has no bfloat16; arrays of it have any other dtype of 16 bits.

        Raises what the library raises.
        """
        try:
            request = self._free.pop()
        except IndexError:  # all are in use
            request = _Request(self._compiled, self._tensor, self._is_computed)
        made = request.run(arrays)
        self._free.append(request)
        return made


class _Request:
    def __init__(self, compiled: Any, tensor: Any, is_computed: Sequence[bool]) -> None:
        own = compiled.create_infer_request()
        self._infer = own.infer
        self._inputs = [_Input(own, tensor, i, port) for i, port in enumerate(compiled.inputs)]
        self._results: list[Result] = [
            result(own, tensor, i, port, is_computed[i]) for i, port in enumerate(compiled.outputs)
        ]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        for one, array in zip(self._inputs, arrays, strict=True):
            one.put(array)
        for expected in self._results:
            expected.begin()
        self._infer(None, share_outputs=True)
        return [expected.taken() for expected in self._results]


class _Input:
    def __init__(self, own: Any, tensor: Any, index: int, port: Any) -> None:
        self._own, self._tensor, self._index, self._type = own, tensor, index, port.element_type
        self._kept: Array | None = None

    def put(self, array: Array) -> None:
        kept = self._kept
        if kept is not None and kept.shape == array.shape:
            kept[...] = array
            return
        if array.nbytes < _LARGE_BYTES:
            array = self._kept = array.copy()
        else:
            self._kept = None
            array = array if array.flags.writeable else array.copy()  # the library's tensors may be written to
        self._own.set_input_tensor(self._index, self._tensor(array, array.shape, self._type))
