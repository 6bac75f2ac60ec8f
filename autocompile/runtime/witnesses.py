"""Some elements of each tensor, looked at again and again: what is written behind torch's back shows in them.

`tensor.data.mul_(2)`, as moving averages of weights do it, `layer.weight.data += delta`, as adapters are merged, a
write through a NumPy view: torch counts none of these. Where they change all of a tensor, or most of it, they nearly
always change an element that is looked at here. A change of single rows or elements may be missed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Of each tensor: about so many, at even distances.
_EACH = 2
# Among so many elements one that is not zero is looked for, as many changes leave zeros what they are.
_LOOKED_THROUGH = 32


def witnesses(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Addresses of bytes of their elements; of those tensors only that are in the processor's memory."""
    return [address for tensor in tensors if _is_readable(tensor) for address in _addresses(tensor)]


def _is_readable(tensor: torch.Tensor) -> bool:
    """Others, as those that wrap tensors, may have no memory of their own."""
    is_plain = type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_plain and tensor.numel() > 0 and tensor.data_ptr() != 0


def _addresses(tensor: torch.Tensor) -> list[int]:
    part = tensor.numel() / _EACH
    return [_address(tensor, range(int(i * part), max(int((i + 1) * part), 1))) for i in range(_EACH)]


def _address(tensor: torch.Tensor, part: range) -> int:
    """Where an element of a part of it lies, if possible one that is not zero: its highest byte that is not."""
    size = tensor.element_size()
    for number in part[len(part) // 2 :][:: max(len(part) // (2 * _LOOKED_THROUGH), 1)]:
        place = tensor.data_ptr() + _distance(tensor, number) * size
        used = len(ctypes.string_at(place, size).rstrip(b"\0"))
        if used:
            return place + used - 1
    return tensor.data_ptr()


def _distance(tensor: torch.Tensor, number: int) -> int:
    """Elements from the first one to this one, in memory."""
    distance = 0
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        number, index = divmod(number, size)
        distance += index * stride
    return distance
