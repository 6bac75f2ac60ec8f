"""The memory of a compiled model's outputs. Does not import torch.

The library writes outputs to the same memory at each call, so they are copied. Copying a large output would cost a
noticeable part of the call (3 MB of logits: some 10% for a small decoder). Therefore, where the library only computes
into its memory, it is given memory that then belongs to the caller. If the caller still has the last output during the
next call, as in `output = model(x)` in a loop, that call takes new memory (5% of a call of that decoder).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Copying smaller outputs is faster than giving the library memory for them.
_LARGE_BYTES = 128 * 1024
# The width of the widest vector instructions. The library writes faster to addresses that are multiples of it.
_ALIGNMENT = 64
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


class Result(Protocol):
    """One output of a request. `begin` precedes each call of the library. Then `taken` returns the caller's array."""

    def begin(self) -> None: ...

    def taken(self) -> Array: ...


def result(own: Any, tensor: Any, index: int, port: Any, is_computed: bool) -> Result:
    """Return the way to take the output with this index of the request `own`. `port` is the compiled model's."""
    if not is_computed:
        return _Copied(own, index)
    if port.partial_shape.is_static:
        return _OfOneSize(own, tensor, index, port)
    return _OfAnySize(own, tensor, index)


class _Copied:
    """An output in memory that the library may use for something else, too."""

    def __init__(self, own: Any, index: int) -> None:
        self._tensor_of, self._index = own.get_output_tensor, index

    def begin(self) -> None:
        """Do nothing."""

    def taken(self) -> Array:
        return np.array(self._tensor_of(self._index).data)


class _OfOneSize:
    """An output in memory provided here: the same memory again as long as no caller has an array on it."""

    def __init__(self, own: Any, tensor: Any, index: int, port: Any) -> None:
        self._own, self._tensor, self._index, self._type = own, tensor, index, port.element_type
        self._shape, self._dtype = tuple(port.shape), np.dtype(port.element_type.to_dtype())
        self._bytes = math.prod(self._shape) * self._dtype.itemsize
        self._kind = ctypes.c_ubyte * self._bytes
        self._is_lent = self._bytes >= _LARGE_BYTES
        self._lent: weakref.ref[Array] | None = None
        self._renew()

    def begin(self) -> None:
        if self._lent is not None and self._lent() is not None:
            self._renew()

    def taken(self) -> Array:
        array = self._array()
        if not self._is_lent:
            return array.copy()
        self._lent = weakref.ref(array)
        return array

    def _renew(self) -> None:
        whole = np.empty(self._bytes + _ALIGNMENT, np.uint8)
        self._memory = self._kind.from_buffer(whole, -whole.ctypes.data % _ALIGNMENT)
        self._own.set_output_tensor(self._index, self._tensor(self._array(), self._shape, self._type))

    def _array(self) -> Array:
        """Return a new array on the memory.

        Arrays that are made of it keep this one alive. They would keep its base alive instead, if that was an array.
        """
        return np.ndarray(self._shape, self._dtype, self._memory)


class _OfAnySize:
    """An output in the library's memory, copied if it is small.

    Once it was large, the library is given memory that may be lent. It gets new memory, of the last large size,
    whenever a caller has an array on that of the last call.
    """

    def __init__(self, own: Any, tensor: Any, index: int) -> None:
        self._own, self._tensor, self._index = own, tensor, index
        self._large: tuple[Any, Any] | None = None
        self._is_given = False
        self._lent: weakref.ref[Array] | None = None

    def begin(self) -> None:
        is_lent = self._lent is not None and self._lent() is not None
        if self._large is not None and (is_lent or not self._is_given):
            self._own.set_output_tensor(self._index, self._tensor(*self._large))
            self._is_given = True

    def taken(self) -> Array:
        made = self._own.get_output_tensor(self._index)
        array: Array = made.data  # keeps its tensor alive
        self._lent = None
        if made.byte_size < _LARGE_BYTES:
            return np.array(array)
        self._large = made.element_type, made.shape
        if not self._is_given:
            return np.array(array)
        self._lent = weakref.ref(array)
        return array
