"""Run a compiled model so that its outputs belong to the caller. Does not import torch.

The library writes outputs to the same memory at each call, so they are copied. Copying a large output would cost a
noticeable part of the call (3 MB of logits: some 10% for a small decoder). Therefore, where the library only computes
into its memory, each call provides new memory for the output, which the caller keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Copying smaller outputs is faster than giving the library memory for them.
_LARGE_BYTES = 128 * 1024
# Layers that compute their whole output and do not change their inputs. Other layers may pass an input's memory on as
# an output. If such an output is given other memory, the library writes into that input.
_COMPUTING = frozenset({"FullyConnected", "MatMul", "Convolution", "Deconvolution", "MVN"})


def computed(compiled: Any) -> tuple[bool, ...]:
    """Return for each output of a compiled model whether it is the result of a layer that writes nothing else."""
    results = compiled.get_runtime_model().get_results()
    return tuple(_layer(result.input_value(0).get_node()) in _COMPUTING for result in results)


def _layer(node: Any) -> str:
    described = node.get_rt_info()
    return str(described["layerType"].astype(str)) if "layerType" in described else ""


class Requests:
    """A compiled model and requests to run it. Concurrent calls in several threads use one request each."""

    def __init__(self, compiled: Any, tensor: Any, is_computed: Sequence[bool]) -> None:
        self._compiled, self._tensor, self._is_computed = compiled, tensor, tuple(is_computed)
        self._free: deque[_Request] = deque()

    def run(self, inputs: Sequence[Any]) -> list[Array]:
        """Run the model on the library's tensors, whose memory must stay valid until this returns.

        Raises what the library raises.
        """
        try:
            request = self._free.pop()
        except IndexError:  # all are in use
            request = _Request(self._compiled.create_infer_request(), self._tensor, self._is_computed)
        made = request.run(inputs)
        self._free.append(request)
        return made


class _Request:
    def __init__(self, own: Any, tensor: Any, is_computed: Sequence[bool]) -> None:
        self._own, self._tensor, self._is_computed = own, tensor, is_computed
        # The outputs for which the caller provides memory: their types and their last sizes.
        self._given: dict[int, tuple[Any, Any]] = {}

    def run(self, inputs: Sequence[Any]) -> list[Array]:
        own = self._own
        for index, one in enumerate(inputs):
            own.set_input_tensor(index, one)
        for index, (kind, shape) in self._given.items():
            own.set_output_tensor(index, self._tensor(kind, shape))
        own.infer(None, share_outputs=True)
        return [self._output(index) for index in range(len(self._is_computed))]

    def _output(self, index: int) -> Array:
        made = self._own.get_output_tensor(index)
        view: Array = made.data  # keeps its tensor alive
        is_given = index in self._given
        if is_given or (self._is_computed[index] and made.byte_size >= _LARGE_BYTES):
            self._given[index] = made.element_type, made.shape
        return view if is_given else np.array(view)
