"""One compiled program in an artifact: the calls that it takes, and the files that it consists of."""

from __future__ import annotations

from typing import Any, Literal

from autocompile.core.serde import Record


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
    """Return the calls that a program takes, one line per argument."""
    ranges = {axis.name: f"{axis.low}..{axis.high}" for axis in program.axes}
    return tuple(_argument_line(guard, ranges) for guard in program.guards)


def _argument_line(guard: TensorGuard | ConstantGuard, ranges: dict[str, str]) -> str:
    name = guard.path.split("]", 1)[1].strip("[]'") or guard.path
    if isinstance(guard, ConstantGuard):
        return f"{name}: {guard.literal}"
    sizes = ", ".join(str(size) if isinstance(size, int) else ranges[size] for size in guard.shape)
    return f"{name}: {guard.dtype} ({sizes})"
