"""Write a model as a file that runs without autocompile, and run that file as its example does."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from autocompile.core.export import Input, Interface, Output
from autocompile.core.plan import Plan
from autocompile.core.program import Program, TensorGuard
from autocompile.core.serde import to_plain
from autocompile.runtime.base import Loaded, NotPackable
from autocompile.runtime.example import FILE, Arrays, Code, example_text
from autocompile.runtime.export import Exported, described, exported
from autocompile.runtime.files import Files
from autocompile.runtime.format import Format
from autocompile.runtime.model_watch import Watch
from autocompile.runtime.naming import argument_words, identifiers, output_words, values_range
from autocompile.runtime.outputs import assembler
from autocompile.workload.axes import FreeAxis, leaves_of
from autocompile.workload.samples import Sample


@dataclass(frozen=True)
class Source:
    """What to write: an export of the model, the record of its calls, and one call with named tensors.

    `tensors` are the call's tensors. `inputs` and `outputs` are names for them and for the output's tensors, in order.
    """

    export: Exported
    program: Program
    plan: Plan
    tensors: Sequence[torch.Tensor]
    inputs: Sequence[str]
    outputs: Sequence[str]

    @property
    def guards(self) -> list[TensorGuard]:
        """The requirements for each of the call's tensors."""
        return [guard for guard in self.program.guards if isinstance(guard, TensorGuard)]

    @property
    def device_type(self) -> str:
        """The type of device of the call's tensors."""
        return self.tensors[0].device.type


@dataclass(frozen=True)
class Wiring:
    """How a file's inputs and outputs correspond to those of the model.

    `inputs` has, for each input of the file, the index of the call's tensor. `gives` has, for each tensor of the
    model's output, the index of the file's output. `notes` are further limits on the calls that the file accepts.
    """

    inputs: tuple[int, ...]
    gives: tuple[int, ...]
    notes: tuple[str, ...] = ()


class Writer(ABC):
    """The other half of a `Format`, which writes it. `arrays` is what its examples take and return."""

    arrays: Arrays = "numpy"

    @abstractmethod
    def write(self, source: Source, path: Path) -> Wiring:
        """Write the file to `path`, and further files that belong to it next to it. Raises NotPackable."""

    @abstractmethod
    def code(self, source: Source) -> Code:
        """Return the code that runs the file, for its example."""

    def exported_as(self, plan: Plan) -> Plan:
        """Return the plan to export the model with, for formats that get the other settings when the file is loaded."""
        return plan


def writer_of(form: Format) -> Writer:
    """Return the writer of a format. Raises ImportError if its library is missing."""
    writer: Writer = import_module(form.implementation).WRITER
    return writer


class Written:
    """A file and its example, made and loaded like a program that is compiled ahead.

    `workload` is the workload's name.
    """

    def __init__(self, form: Format, workload: str, device: torch.device) -> None:
        self._form, self._workload, self._device = form, workload, device
        self._writer = writer_of(form)

    def compile_ahead(
        self, model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, _name: str
    ) -> Program:
        """Write the file into `directory` and replace anything that is there. Raises NotPackable."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        export = exported(model, self._writer.exported_as(plan), sample, axes)
        program = described(export, sample, axes, (), {})
        arguments = argument_words(model, sample)
        words = [word for word, leaf in arguments if isinstance(leaf, torch.Tensor)]
        inputs = identifiers(words)
        places = output_words(export.output_spec)
        given = [place for place, literal in zip(places, export.outputs, strict=True) if literal is None]
        tensors = [leaf for leaf in leaves_of(sample) if isinstance(leaf, torch.Tensor)]
        source = Source(export, program, plan, tensors, inputs, identifiers(given, inputs))
        if self._writer.arrays == "numpy":
            _check_for_numpy(source)
        wiring = self._writer.write(source, directory / self._form.file)
        literals = {place: said for place, said in zip(places, export.outputs, strict=True) if said is not None}
        fixed = {word: repr(leaf) for word, leaf in arguments if not isinstance(leaf, torch.Tensor)}
        interface = Interface(
            inputs=tuple(_input(source, words[position], position) for position in wiring.inputs),
            outputs=_outputs(source.outputs, given, wiring.gives),
            gives=wiring.gives,
            fixed=fixed,
            unused=tuple(word for position, word in enumerate(words) if position not in wiring.inputs),
            literals=literals,
            notes=wiring.notes,
        )
        code = self._writer.code(source)
        text = example_text(self._form, self._workload, interface, code, arrays=self._writer.arrays)
        (directory / FILE).write_text(text)
        files = tuple(sorted(path.name for path in directory.iterdir()))
        return replace(program, files=files, own=to_plain(interface), needs_model=False)

    def load(self, program: Program, files: Files, _model: Any, _watch: Watch) -> Loaded:
        """Return a function that calls the example's `run` and returns the results in the model's output structure."""
        interface = msgspec.convert(program.own, Interface)
        run = _imported(files.path(FILE)).run
        assemble = assembler(program)
        positions = [one.position for one in interface.inputs]
        of_numpy, device = self._writer.arrays == "numpy", self._device

        def called(tensors: list[torch.Tensor]) -> Any:
            given = [tensors[position].detach() for position in positions]
            if not of_numpy:
                made = run(*given)
            else:
                arrays = run(*(tensor.cpu().contiguous().numpy() for tensor in given))
                made = [torch.from_numpy(array).to(device) for array in arrays]
            return assemble([made[output] for output in interface.gives])

        return called


def _input(source: Source, argument: str, position: int) -> Input:
    guard, tensor = source.guards[position], source.tensors[position]
    low, high = values_range(tensor)
    return Input(
        name=source.inputs[position],
        argument=argument,
        position=position,
        dtype=guard.dtype,
        shape=guard.shape,
        sizes=tuple(tensor.shape),
        low=low,
        high=high,
        layout="channels_last" if guard.layout == "channels_last" else "contiguous",
    )


def _check_for_numpy(source: Source) -> None:
    """Raise NotPackable for a dtype that NumPy does not have."""
    given = [str(node.meta["val"].dtype) for node in source.export.program.graph.output_node().args[0]]
    if "torch.bfloat16" in (*(str(tensor.dtype) for tensor in source.tensors), *given):
        raise NotPackable("it takes or returns bfloat16, which NumPy does not have; make it take and return float32")


def _outputs(names: Sequence[str], places: Sequence[str], gives: Sequence[int]) -> tuple[Output, ...]:
    """Return the file's outputs, each with all its places in the model's output."""
    found = []
    for output in range(max(gives, default=-1) + 1):
        of_model = [tensor for tensor, given in enumerate(gives) if given == output]
        found.append(Output(names[of_model[0]], tuple(places[tensor] for tensor in of_model)))
    return tuple(found)


def _imported(path: Path) -> ModuleType:
    """Return an example as a module that is not in `sys.modules`. No bytecode file is written for it."""
    module = ModuleType("exported_example")
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), path, "exec"), vars(module))  # noqa: S102  it was written just now, by this process
    return module
