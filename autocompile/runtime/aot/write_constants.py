"""Write a program's own constants into one file, which `constants.py` maps."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from autocompile.runtime.aot.constants import span_of
from autocompile.runtime.aot.package import Constant
from autocompile.runtime.base import NotPackable

# The alignment that torch uses for its own constants.
_ALIGNMENT = 64


class NotMappable(NotPackable):
    """A constant cannot be in a file that is mapped; the message names it."""


def write_constants(constants: Mapping[str, torch.Tensor], path: Path) -> tuple[tuple[Constant, ...], int]:
    """Write constants into a new file at `path`. Return the entry of each constant, and the file's size in bytes.

    Raises NotMappable and OSError.
    """
    entries: list[Constant] = []
    starts: dict[tuple[int, int], int] = {}
    copies = []  # kept alive, so that no two have the same address
    with path.open("wb") as stream:
        for name, tensor in constants.items():
            entry, address, copy = _described(name, tensor)
            copies.append(copy)
            start = starts.get((address, entry.size))
            if start is None:
                stream.write(bytes(-stream.tell() % _ALIGNMENT))
                start = starts[address, entry.size] = stream.tell()
                stream.write((ctypes.c_ubyte * entry.size).from_address(address) if entry.size else b"")
            entries.append(msgspec.structs.replace(entry, start=start))
        # An empty file cannot be mapped.
        stream.write(bytes(-stream.tell() % _ALIGNMENT or _ALIGNMENT))
        return tuple(entries), stream.tell()


def _described(name: str, tensor: torch.Tensor) -> tuple[Constant, int, torch.Tensor]:
    """Return a constant's entry without its start, the address of its bytes, and the tensor that they belong to."""
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        raise NotMappable(f"{name} is a {type(tensor).__name__}")
    if tensor.is_mkldnn:
        return _in_own_layout(name, tensor)
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        raise NotMappable(f"{name} is a tensor of layout {tensor.layout}, or a conjugated, negated or quantized tensor")
    span = span_of(tensor.shape, tensor.stride())
    # This keeps its strides, whatever device it is copied from.
    plain = tensor.detach().as_strided((span,), (1,)).cpu()
    entry = Constant(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        start=0,
        size=span * tensor.element_size(),
        device_type=tensor.device.type,
    )
    return entry, plain.data_ptr(), plain


def _in_own_layout(name: str, tensor: torch.Tensor) -> tuple[Constant, int, torch.Tensor]:
    """Describe a tensor in one of oneDNN's layouts, into which the compiler packs weights ahead of time."""
    own: Any = torch.ops.mkldnn
    try:
        layout = bytes(own._get_mkldnn_serialized_md(tensor).tolist())  # noqa: SLF001
        size, address = own._nbytes(tensor), own.data_ptr(tensor)  # noqa: SLF001
    except (AttributeError, RuntimeError) as fault:
        raise NotMappable(f"{name} is in a layout of oneDNN's that this torch cannot write") from fault
    entry = Constant(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=(),
        start=0,
        size=int(size),
        layout=zlib.compress(layout),
    )
    return entry, int(address), tensor
