"""One compiled program in an artifact: the calls that it takes, and the files that it consists of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

from autocompile.core.serde import Record

# Up to this number of further arguments of one kind are named one by one.
_FEW = 3


class Axis(Record, frozen=True):
    """A size that may differ between calls, from `low` to `high`. In a call, all axes of this name have one size."""

    name: str
    low: int
    high: int


class TensorGuard(Record, tag="tensor", frozen=True):
    """The requirements on one tensor argument. `shape` has a size, or an axis's name, per dimension.

    `layout`: `contiguous`, `channels_last`, or `strided`, which requires exactly `stride` (in elements). `device_type`:
    the device of the tensor. If it is the type of device that the program runs on, the tensor must be on that device.
    """

    path: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: Literal["contiguous", "channels_last", "strided"]
    stride: tuple[int, ...] = ()
    device_type: str = "cpu"


class ConstantGuard(Record, tag="constant", frozen=True):
    """An argument that is not a tensor, as a Python literal. The program is valid for this value only."""

    path: str
    literal: str


class Program(Record, frozen=True):
    """One compiled program of any runtime.

    Attributes:
        positional: The number of positional arguments.
        keywords: The names of the keyword arguments.
        input_spec: The structure of the arguments, as torch serializes a pytree.
        guards: The requirements on the flattened arguments, in order.
        axes: The sizes that may vary.
        output_spec: The structure of the outputs, as torch serializes a pytree.
        outputs: For each leaf of the output, a literal, or null if it is the program's next tensor.
        files: The names of its files in `directory`.
        own: The runtime's own record, as plain JSON.
        needs_model: Whether it takes weights from the model.
        directory: The directory of its files within the artifact.
    """

    positional: int
    keywords: tuple[str, ...]
    input_spec: str
    guards: tuple[TensorGuard | ConstantGuard, ...]
    axes: tuple[Axis, ...]
    output_spec: str
    outputs: tuple[str | None, ...]
    files: tuple[str, ...]
    own: dict[str, Any] = {}
    needs_model: bool = True
    directory: str = ""


def accepted_calls(program: Program) -> tuple[str, ...]:
    """Return the calls that a program takes: one line per argument, or per row of arguments of one kind."""
    ranges = {axis.name: f"{axis.low}..{axis.high}" for axis in program.axes}
    rows = [[*row] for _what, row in groupby(program.guards, key=lambda guard: _accepted(guard, ranges))]
    return tuple(f"{_named(row)}: {_accepted(row[0], ranges)}" for row in rows)


def _accepted(guard: TensorGuard | ConstantGuard, ranges: dict[str, str]) -> str:
    if isinstance(guard, ConstantGuard):
        return guard.literal
    sizes = ", ".join(str(size) if isinstance(size, int) else ranges[size] for size in guard.shape)
    return f"{guard.dtype} ({sizes})"


def _named(row: Sequence[TensorGuard | ConstantGuard]) -> str:
    """Return the names of some arguments."""
    first, *others = (re.sub(r"^kwargs\['([^']*)'\]", r"\1", guard.path) for guard in row)
    if len(others) < _FEW:
        return ", ".join((first, *others))
    return f"{first} to {others[-1]}"
