"""The record of AOTInductor's program in the manifest. Does not import torch."""

from __future__ import annotations

import msgspec

from autocompile.core.program import Program
from autocompile.core.serde import Record


class Weight(Record, frozen=True):
    """A tensor that the program uses from the model, at `path`.

    `tied` are the paths of other tensors of the model with the same memory, of which the program knows only one.
    `device_type` is the type of device that it must be on.
    """

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    tied: tuple[str, ...] = ()
    device_type: str = "cpu"


class Constant(Record, frozen=True):
    """A tensor of the program's own: `size` bytes from `start` on in the file of constants; strides are in elements.

    `device_type` is where the program needs it. `layout` is oneDNN's description of its own layout, compressed, or
    empty for a plain tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    start: int
    size: int
    device_type: str = "cpu"
    layout: bytes = b""


class Package(Record, frozen=True):
    """The parts of a program.

    Attributes:
        code: The directory or file that torch's loader is given. It runs on `device_type`.
        code_files: The names of the files of the code.
        weights: The tensors used from the model.
        constants: The tensors in `constants_file`, which has `constants_bytes` bytes.
        is_closed: Whether all constants are in the code, so that the program takes none.
        placement_file: The compiled check of the weights' addresses, or "" if there is none.
        float32: As in the plan that it was compiled for.
        is_captured: Whether its calls are replayed as a CUDA graph.
    """

    code: str
    code_files: tuple[str, ...]
    weights: tuple[Weight, ...] = ()
    constants: tuple[Constant, ...] = ()
    constants_file: str = ""
    constants_bytes: int = 0
    is_closed: bool = False
    device_type: str = "cpu"
    placement_file: str = ""
    float32: str = ""
    is_captured: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all files."""
        return (*self.code_files, *filter(None, (self.constants_file, self.placement_file)))


def package_of(program: Program) -> Package:
    """Return the program's package.

    Raises ValueError if its record cannot be read, or names files that are not its own.
    """
    package = msgspec.convert(program.own, Package)
    strange = [name for name in package.files if name not in program.files]
    if not any(name == package.code or name.startswith(f"{package.code}/") for name in package.code_files):
        strange.append(package.code)
    if strange:
        raise ValueError(f"it names {strange[0]}, which is not one of its files")
    return package
