"""Convert an exported program to OpenVINO's model format."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch.export import ExportedProgram

from autocompile.core.program import Axis, TensorGuard
from autocompile.runtime.base import NotPackable
from autocompile.runtime.explanations import Row, matched
from autocompile.runtime.openvino.library import in_a_line, openvino
from autocompile.runtime.openvino.operators import DECOMPOSITIONS
from autocompile.runtime.openvino.package import TYPES

_CONVERSIONS = (
    Row(
        r"No conversion rule found for operations: ([^\n]+)",
        "OpenVINO does not support {0}",
        "write it with other operators",
        "model",
    ),
    Row(
        r"-- (\S+) with a message:[\s\S]*?(?:\[PyTorch Frontend\] )?([^\n]+)\n\s*\n",
        "OpenVINO cannot convert {0}: {1}",
        "write it with other operators",
    ),
)


@dataclass(frozen=True)
class Converted:
    """The library's `model`; `inputs` and `outputs` as in `package.Package`."""

    model: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[str, ...]


def converted(program: ExportedProgram, guards: Sequence[TensorGuard], axes: Sequence[Axis]) -> Converted:
    """Convert a program to a model of the library, for these arguments over these ranges. Raises NotPackable."""
    followed = _Followed(program)
    model = _translated(followed)
    inputs = _inputs(model, followed.program.graph_signature.user_inputs, guards)
    _limit_sizes(model, [guards[position] for position in inputs], axes)
    return Converted(model, inputs, followed.outputs, followed.dtypes)


class _Followed:
    """A program on its way through the library's decoder, which decomposes it and then asks for its module.

    The steps show what the library does not report: what the program changes, and which output is which.
    """

    outputs: tuple[int, ...]
    dtypes: tuple[str, ...]

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def run_decompositions(self, table: Any) -> _Followed:
        """Decompose the program into the operators that the library knows."""
        self.program = self.program.run_decompositions({**table, **DECOMPOSITIONS})
        return self

    def module(self) -> Any:
        """Return a graph that returns each output once."""
        _refuse_changes(self.program)
        module = self.program.module()
        self.outputs, self.dtypes = _distinct_outputs(self.program, module)
        return module


def _refuse_changes(program: ExportedProgram) -> None:
    """Raise NotPackable if the program changes state: a converted model has no state and writes only its outputs."""
    signature = program.graph_signature
    for buffer in signature.buffers_to_mutate.values():
        said = f"it changes its buffer {buffer.removeprefix('model.')}, which OpenVINO's program cannot do"
        raise NotPackable(said, "model")
    if signature.user_inputs_to_mutate:
        raise NotPackable("it changes an argument in place, which OpenVINO's program cannot do", "model")


def _distinct_outputs(program: ExportedProgram, module: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Keep each output of a program's `module` only once, because the library accepts no output twice.

    Return the index of each original output among them, and their dtypes.
    """
    names = program.graph_signature.user_outputs
    distinct = list(dict.fromkeys(names))
    output = module.graph.output_node()
    output.args = (tuple(output.args[0][names.index(name)] for name in distinct),)
    made = {node.name: node.meta.get("val") for node in program.graph.nodes}
    dtypes = tuple(str(made[str(name)].dtype).removeprefix("torch.") for name in distinct)
    return tuple(map(distinct.index, names)), dtypes


def _translated(followed: _Followed) -> Any:
    """Return the library's model, in which all sizes may vary."""
    library = openvino()  # must be imported before any part of it
    decoder = import_module("openvino.frontend.pytorch.fx_decoder").TorchFXPythonDecoder
    frontend = library.frontend.FrontEndManager().load_by_framework("pytorch")
    try:
        # The same steps as in the public `convert_model`, but without its telemetry.
        with _quietly():
            decoded = decoder.from_exported_program(followed)
        return frontend.convert(frontend.load(decoded))
    except NotPackable:
        raise
    except Exception as fault:  # the library and its decoder raise their own types
        raise _explained(fault) from fault


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the decoder's messages about torch's operators in the root logger, and torch's warnings."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)  # otherwise logging would add a permanent handler
    root.addFilter(_is_not_the_decoders)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.removeFilter(_is_not_the_decoders)
        root.removeHandler(silent)


def _is_not_the_decoders(record: logging.LogRecord) -> bool:
    return record.module != "fx_decoder"


def _explained(fault: BaseException) -> NotPackable:
    row, groups = matched(_CONVERSIONS, str(fault))
    if row is None:
        return NotPackable(f"OpenVINO cannot convert it: {in_a_line(fault)}")
    return NotPackable(f"{row.reason.format(*(group.strip() for group in groups))}; {row.advice}", row.cause)


def _inputs(model: Any, names: Sequence[str], guards: Sequence[TensorGuard]) -> tuple[int, ...]:
    """Return which of the call's tensors each input is, by name. An unused tensor may have no input."""
    positions = []
    for port in model.inputs:
        position = next((i for i, name in enumerate(names) if name in port.names), None)
        if position is None:
            raise NotPackable(f"OpenVINO has an input {port.any_name}, which is not an argument of the model")
        dtype, own = guards[position].dtype, port.element_type.get_type_name()
        if own != TYPES.get(dtype):
            raise NotPackable(f"OpenVINO takes argument {guards[position].path} as {own}, but it is {dtype}")
        positions.append(position)
    return tuple(positions)


def _limit_sizes(model: Any, guards: Sequence[TensorGuard], axes: Sequence[Axis]) -> None:
    """Set the ranges of the sizes that vary."""
    library = openvino()
    ranges = {axis.name: library.Dimension(axis.low, axis.high) for axis in axes}
    shapes = {
        index: library.PartialShape([size if isinstance(size, int) else ranges[size] for size in guard.shape])
        for index, guard in enumerate(guards)
    }
    try:
        model.reshape(shapes)
    except RuntimeError as fault:
        raise NotPackable(f"OpenVINO cannot handle its sizes: {in_a_line(fault)}") from fault
