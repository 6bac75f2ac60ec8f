"""Map a program's own constants from one file next to its code, so that all processes that load it share the memory.

Clean pages of a private mapping are shared with the file, and the mapping needs no permission to write to it. Torch's
own way to store constants outside of the code copies them into each process, and cannot store oneDNN's layouts.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from autocompile.runtime.aot.package import Constant, Package
from autocompile.runtime.base import NotLoadable
from autocompile.runtime.files import Files

# Far more than the description of a layout needs.
_MOST_LAYOUT_BYTES = 1 << 16


class Mapped:
    """A program's constants in their file, which stays mapped as long as this object exists.

    Nothing is read in advance. The constants must not be written to. Raises NotLoadable if the file does not fit the
    package.
    """

    def __init__(self, package: Package, files: Files) -> None:
        self._constants = package.constants
        if not package.constants:
            self._tensors: dict[str, torch.Tensor] = {}
            return
        path, size = files.path(package.constants_file), package.constants_bytes
        try:
            self._memory = _memory(path, size)
            self._tensors = {constant.name: _tensor(constant, self._memory) for constant in package.constants}
        except (AttributeError, OSError, RuntimeError, TypeError, ValueError, zlib.error) as fault:
            said = next(iter(str(fault).splitlines()), type(fault).__name__)
            raise NotLoadable(f"{path.name} cannot be mapped: {said}") from fault

    def tensors(self, gpu: int = -1) -> dict[str, torch.Tensor]:
        """Return the constants by name, each on the device where the program needs it.

        `gpu` is a device's index, or -1 for the current device.
        """
        device = torch.device("cuda") if gpu < 0 else torch.device("cuda", gpu)
        return {
            one.name: self._tensors[one.name] if one.device_type == "cpu" else _moved(self._tensors[one.name], device)
            for one in self._constants
        }


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to another device, with the strides that the program was compiled for, including gaps."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device).copy_(tensor)


def span_of(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements in memory from a tensor's first to its last element."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def _memory(path: Path, size: int) -> Any:
    found = path.stat().st_size
    if found != size:
        raise ValueError(f"it has {found} bytes, not {size}")
    return torch.UntypedStorage.from_file(str(path), False, size)


def _tensor(constant: Constant, memory: Any) -> torch.Tensor:
    dtype = getattr(torch, constant.dtype)
    if constant.start < 0 or constant.size < 0 or constant.start + constant.size > memory.nbytes():
        raise ValueError(f"{constant.name} is outside of it")
    if constant.layout:
        return _in_own_layout(constant, dtype, memory.data_ptr() + constant.start)
    if min((*constant.shape, *constant.stride), default=0) < 0 or constant.start % dtype.itemsize:
        raise ValueError(f"{constant.name} cannot start there")
    if span_of(constant.shape, constant.stride) * dtype.itemsize > constant.size:
        raise ValueError(f"{constant.name} is larger than its place")
    tensor = torch.empty(0, dtype=dtype)
    return tensor.set_(memory, constant.start // dtype.itemsize, constant.shape, constant.stride)


def _in_own_layout(constant: Constant, dtype: torch.dtype, address: int) -> torch.Tensor:
    """Return a tensor in one of oneDNN's layouts. Only torch's C interface can make one on existing memory."""
    unpacking = zlib.decompressobj()
    layout = unpacking.decompress(constant.layout, _MOST_LAYOUT_BYTES)
    if not unpacking.eof:  # the description must be complete, because torch does not check it
        raise ValueError(f"the layout of {constant.name} is damaged")
    functions, dimensions = _functions(), len(constant.shape)
    made = ctypes.c_void_p()
    numbers = ctypes.c_int64 * dimensions
    failed = functions.aoti_torch_create_tensor_from_blob_v2(
        ctypes.c_void_p(address), ctypes.c_int64(dimensions), numbers(*constant.shape), numbers(), ctypes.c_int64(0),
        ctypes.c_int32(getattr(functions, f"aoti_torch_dtype_{constant.dtype}")()),
        ctypes.c_int32(functions.aoti_torch_device_type_cpu()), ctypes.c_int32(0), ctypes.byref(made),
        ctypes.c_int32(functions.aoti_torch_layout__mkldnn()), layout, ctypes.c_int64(len(layout)),
    )  # fmt: skip
    if failed:
        raise ValueError(f"{constant.name} has a layout that torch does not know")
    tensor: torch.Tensor = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(_capsule(made))  # noqa: SLF001
    described = tensor.dtype, tuple(tensor.shape), torch.ops.mkldnn._nbytes(tensor)  # noqa: SLF001
    if described != (dtype, constant.shape, constant.size):
        raise ValueError(f"{constant.name} is not of the size of its place")
    return tensor


def _capsule(pointer: ctypes.c_void_p) -> Any:
    """Wrap a pointer in the form that torch's Python functions take."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(pointer.value, None, None)


@cache
def _functions() -> Any:
    """Return torch's C interface, which is in its shared library."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
