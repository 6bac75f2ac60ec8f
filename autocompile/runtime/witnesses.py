"""Check some elements of each tensor again and again, to detect writes that bypass torch.

Torch does not count a write through a NumPy view, `tensor.data.mul_(2)`, as moving averages of weights do it, or
`layer.weight.data += delta`, as adapters are merged. If such a write changes all or most of a tensor, it nearly always
changes an element that is checked here. Changes of single rows or elements may be missed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
# About this number of elements of each tensor, evenly spaced.
_EACH = 2
# Up to this number of elements are searched for one that is not zero, because many changes leave zeros as they are.
_LOOKED_THROUGH = 32


def witnesses(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return addresses of bytes of the tensors' elements. Only tensors in the CPU's memory have any."""
    return [address for tensor in tensors if _is_readable(tensor) for address in _addresses(tensor)]


def _is_readable(tensor: torch.Tensor) -> bool:
    """Return whether the tensor has its own memory; other tensors, such as wrappers of tensors, may have none."""
    is_plain = type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_plain and tensor.numel() > 0 and tensor.data_ptr() != 0


def _addresses(tensor: torch.Tensor) -> list[int]:
    part = tensor.numel() / _EACH
    return [_address(tensor, range(int(i * part), max(int((i + 1) * part), 1))) for i in range(_EACH)]


def _address(tensor: torch.Tensor, part: range) -> int:
    """Return the address of the highest nonzero byte of an element in this part, if possible of a nonzero element."""
    size, start, is_dense = tensor.element_size(), tensor.data_ptr(), tensor.is_contiguous()
    for number in part[len(part) // 2 :][:: max(len(part) // (2 * _LOOKED_THROUGH), 1)]:
        place = start + (number if is_dense else _distance(tensor, number)) * size
        used = len(ctypes.string_at(place, size).rstrip(b"\0"))
        if used:
            return place + used - 1
    return start


def _distance(tensor: torch.Tensor, number: int) -> int:
    """Return the distance in memory from the first element to this one, in elements."""
    distance = 0
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        number, index = divmod(number, size)
        distance += index * stride
    return distance
