"""What AOTInductor's program is put together of: its record in the manifest. No torch."""

from __future__ import annotations

import msgspec

from autocompile.core.program import Program
from autocompile.core.serde import Record


class Weight(Record, frozen=True):
    """A tensor that the program takes from the model (or, if `lifted`, from the artifact's constants).

    `tied` are the paths of others in the model that were the same memory: the program knows one of them.
    """

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    lifted: bool = False
    tied: tuple[str, ...] = ()


class Package(Record, frozen=True):
    """`file`: the package that torch wrote. `constants_file`: tensors of the program's own, or "" for none.

    `placement_file`: the compiled check of where the weights lie, "" if there is none.
    """

    file: str
    weights: tuple[Weight, ...]
    constants_file: str = ""
    placement_file: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(filter(None, (self.file, self.constants_file, self.placement_file)))


def package_of(program: Program) -> Package:
    """The program's package. Raises ValueError if its record cannot be read, or names files that are not its own."""
    package = msgspec.convert(program.own, Package)
    strange = [name for name in package.files if name not in program.files]
    if strange:
        raise ValueError(f"it names {strange[0]}, which is none of its files")
    return package
