"""The record of OpenVINO's program in the manifest. Does not import torch."""

from __future__ import annotations

import msgspec

from autocompile.core.program import Program
from autocompile.core.serde import Record

# The library's names of the dtypes, by torch's names.
TYPES = {
    "bool": "boolean", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "f16",
    "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip


class Package(Record, frozen=True):
    """The parts of a program.

    Attributes:
        file: The program as the library stored it, with its weights.
        inputs: For each of the program's inputs, the index of the call's tensor.
        outputs: For each tensor of the model's output, the index of the program's output.
        dtypes: The dtypes of the program's outputs, as torch names them.
        computed: For each of the program's outputs, whether the library only computes into its memory (`results.py`).
        precision: The type in which it computes where the model has a wider one, as the library names it.
        threads: The number of threads, or 0 for as many as torch would use.
        most: For each of the call's tensors, how large its integers may be.
    """

    file: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[str, ...]
    computed: tuple[bool, ...]
    precision: str = "f32"
    threads: int = 0
    most: tuple[int, ...] = ()


def package_of(program: Program) -> Package:
    """Return the program's package.

    Raises ValueError if its record cannot be read, or names a file that is not its own.
    """
    package = msgspec.convert(program.own, Package)
    if package.file not in program.files:
        raise ValueError(f"it names {package.file}, which is not one of its files")
    strange = set(package.dtypes) - TYPES.keys()
    if len(package.computed) != len(package.dtypes):
        raise ValueError("what it says of its outputs does not fit together")
    if package.most and len(package.most) <= max(package.inputs, default=-1):
        raise ValueError("what it says of its inputs does not fit together")
    if strange or not all(0 <= output < len(package.dtypes) for output in package.outputs):
        raise ValueError("what it says of its outputs does not fit together")
    return package
