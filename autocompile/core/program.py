"""One compiled program in an artifact: the calls that it takes, and what it is put together of."""

from __future__ import annotations

from typing import Any, Literal

from autocompile.core.serde import Record


class Axis(Record, frozen=True):
    """A size that may differ from call to call: every axis of this name has one size, from `low` to `high`."""

    name: str
    low: int
    high: int


class TensorGuard(Record, tag="tensor", frozen=True):
    """What one tensor argument must be; `shape` has a size, or an axis's name. Strides are in elements.

    `layout`: `contiguous`, `channels_last`, or `strided`, which takes exactly `stride`. `device_type`: where it lies;
    on the type of device that the program runs on, it is that very device.
    """

    path: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: Literal["contiguous", "channels_last", "strided"]
    stride: tuple[int, ...] = ()
    device_type: str = "cpu"


class ConstantGuard(Record, tag="constant", frozen=True):
    """An argument that is no tensor, as Python writes it: the program holds for this value only."""

    path: str
    literal: str


class Program(Record, frozen=True):
    """One compiled program, whatever its runtime.

    `positional` and `keywords` are the call's form, `input_spec` the structure of its arguments and `output_spec` that
    of its outputs, as torch writes a pytree. `guards` are its arguments' in the order in which they are flattened.
    `outputs`: for each leaf of the output a literal, or None where it is the program's next tensor. `files`: what it is
    put together of, by name, in `directory` within the artifact. `own`: the runtime's own record of it, as plain JSON.
    `needs_model`: whether it takes weights from the model.
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
    """The calls that a program takes, a line for each argument."""
    ranges = {axis.name: f"{axis.low}..{axis.high}" for axis in program.axes}
    return tuple(_argument_line(guard, ranges) for guard in program.guards)


def _argument_line(guard: TensorGuard | ConstantGuard, ranges: dict[str, str]) -> str:
    name = guard.path.split("]", 1)[1].strip("[]'") or guard.path
    if isinstance(guard, ConstantGuard):
        return f"{name}: {guard.literal}"
    sizes = ", ".join(str(size) if isinstance(size, int) else ranges[size] for size in guard.shape)
    return f"{name}: {guard.dtype} ({sizes})"
