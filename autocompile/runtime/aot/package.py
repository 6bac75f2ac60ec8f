"""What AOTInductor's program is put together of: its record in the manifest. No torch."""

from __future__ import annotations

import msgspec

from autocompile.core.program import Program
from autocompile.core.serde import Record


class Weight(Record, frozen=True):
    """A tensor that the program takes from the model, at `path`.

    `tied` are the paths of others in the model that were the same memory: the program knows one of them. `device_type`:
    where it has to lie.
    """

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    tied: tuple[str, ...] = ()
    device_type: str = "cpu"


class Constant(Record, frozen=True):
    """A tensor of the program's own, `size` bytes from `start` on in the file of constants; strides are in elements.

    `device_type`: where the program needs it. `layout`: oneDNN's description of a layout that is its own, compressed,
    or nothing for a plain tensor.
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
    """`code`: the directory, or the file, that torch's loader is given, and runs on `device_type`; `code_files`: what
    there is of it, by name.

    `weights` are taken from the model, and `constants` from `constants_file`, which has `constants_bytes`. `is_closed`:
    it has all its constants within its code, and takes none. `placement_file`: the compiled check of where the weights
    lie, "" if there is none. `float32`: as in the plan that it was compiled for. `is_captured`: its calls are
    replayed as a CUDA graph.
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
        """Their names."""
        return (*self.code_files, *filter(None, (self.constants_file, self.placement_file)))


def package_of(program: Program) -> Package:
    """The program's package. Raises ValueError if its record cannot be read, or names files that are not its own."""
    package = msgspec.convert(program.own, Package)
    strange = [name for name in package.files if name not in program.files]
    if not any(name == package.code or name.startswith(f"{package.code}/") for name in package.code_files):
        strange.append(package.code)
    if strange:
        raise ValueError(f"it names {strange[0]}, which is none of its files")
    return package
