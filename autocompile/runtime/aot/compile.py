"""Compile an exported program with AOTInductor, either on the model's weights or on constants made from them."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serde import to_plain
from autocompile.runtime.aot.capturable import check_calls, check_weights
from autocompile.runtime.aot.compile_placement import compiled_placement
from autocompile.runtime.aot.constants import Mapped
from autocompile.runtime.aot.cuda_home import cuda_home
from autocompile.runtime.aot.device_copies import copied_from, held_constants
from autocompile.runtime.aot.noted_constants import noting
from autocompile.runtime.aot.package import Package, Weight
from autocompile.runtime.aot.runner import bind, runner_of
from autocompile.runtime.aot.settings import settings_of
from autocompile.runtime.aot.unpack import Unpacked, unpacked
from autocompile.runtime.aot.write_constants import NotMappable, write_constants
from autocompile.runtime.base import NotLoadable, NotPackable
from autocompile.runtime.compiler_options import SILENT
from autocompile.runtime.devices import check_one_gpu, computing_device
from autocompile.runtime.export import Exported, described, exported
from autocompile.runtime.files import Files
from autocompile.runtime.model_watch import registered_tensors
from autocompile.runtime.strangers import memory_of, refuse_strangers, stranger
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample

_LOG = logging.getLogger("autocompile")
# The prefix of the model's tensors in the exported function.
_MODEL = "model."
IN_THE_CODE = "aot_inductor.package_constants_in_so"
# Otherwise the compiler would put small tensors such as biases into the code, and fold operations on uniform tensors.
_ON_WEIGHTS = {
    "freezing": False,
    IN_THE_CODE: False,
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
}


def compile_ahead(
    model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
) -> Program:
    """Export and compile `model` into `directory`: `name`/ for torch's loader, and `name`.constants next to it.

    `sample` is one call with sizes within the axes' ranges. Raises NotPackable if the model cannot be exported, and
    whatever the compiler raises.
    """
    device = computing_device(model, sample)
    check_one_gpu(model, sample)
    settings = settings_of(plan)
    if settings.is_captured:
        check_calls(sample, axes)
    export = exported(model, plan, sample, axes)
    _as_buffers(export.program)
    compiling = _Compiling(export.program, settings.compiled_with, directory, name)
    if not settings.is_frozen:
        package = compiling.on_weights(model, _tensors_of_its_own(export, model), tunes=device.type != "cpu")
    else:
        refuse_strangers(export.program, export.earlier, model)
        package = (device.type == "cpu" and compiling.on_mapped_constants()) or compiling.closed()
    if settings.is_captured:
        check_weights(package.weights)
    package = msgspec.structs.replace(package, device_type=device.type, is_captured=settings.is_captured)
    program = described(export, sample, axes, package.files, to_plain(package))
    return msgspec.structs.replace(program, needs_model=bool(package.weights))


class _Compiling:
    """One program to compile, and where to put the results."""

    def __init__(self, program: ExportedProgram, options: Mapping[str, Any], directory: Path, name: str) -> None:
        self._program, self._options, self._directory, self._name = program, options, directory, name
        self._constants = f"{name}.constants"

    def on_weights(self, model: Any, own: Mapping[str, torch.Tensor], *, tunes: bool) -> Package:
        """Compile a program that uses the model's weights in place and reads the constants of its code from a file.

        `tunes` is whether matrix products may be tuned. On a CPU, tuned products would have copies of the weights.
        """
        code = self._compiled(_ON_WEIGHTS if tunes else {**_ON_WEIGHTS, "max_autotune": False})
        names = runner_of(self._directory / code.name).get_constant_fqns()
        held = held_constants(names, own)
        package = self._with_constants(held, code)
        weights = tuple(_weights((name for name in names if name not in held), model))
        return msgspec.structs.replace(
            package, weights=weights, placement_file=compiled_placement(self._directory) if weights else ""
        )

    def on_mapped_constants(self) -> Package | None:
        """Compile a program whose constants are in a file to be mapped, or return None if that is impossible."""
        with noting() as noted:
            code = self._compiled({"freezing": True, IN_THE_CODE: False})
        try:
            package = self._with_constants(noted.constants(), code)
            constants = Mapped(package, Files(self._directory))
            bind(runner_of(self._directory / code.name), constants.tensors())
        except (NotLoadable, NotMappable) as fault:
            _LOG.warning("%s has its weights in its code, and each process has a copy of them: %s", self._name, fault)
            (self._directory / self._constants).unlink(missing_ok=True)
            return None
        return package

    def closed(self) -> Package:
        """Compile a program with its constants in its code, as torch packages them by default."""
        code = self._compiled({"freezing": True, IN_THE_CODE: True})
        return Package(code.name, code.files, is_closed=True)

    def _compiled(self, options: Mapping[str, Any]) -> Unpacked:
        package = self._directory / f"{self._name}.pt2"
        write_package(self._program, {**self._options, **options}, package)
        return unpacked(package)

    def _with_constants(self, constants: Mapping[str, torch.Tensor], code: Unpacked) -> Package:
        if not constants:
            return Package(code.name, code.files)
        entries, size = write_constants(constants, self._directory / self._constants)
        return Package(code.name, code.files, constants=entries, constants_file=self._constants, constants_bytes=size)


def write_package(program: ExportedProgram, options: Mapping[str, Any], path: Path) -> None:
    """Compile `program` into torch's own package at `path`, with these options. Raises whatever the compiler raises."""
    import torch._inductor as inductor  # noqa: PLC0415  imports the compiler

    silent = {name: value for name, value in SILENT.items() if hasattr(inductor.config, name)}
    with torch.no_grad(), cuda_home():  # with gradients, nothing would be frozen
        inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs={**silent, **options})


def _as_buffers(exported: ExportedProgram) -> None:
    """Turn constants into buffers, so that they keep their names: the compiler renumbers constants."""
    specs = exported.graph_signature.input_specs
    for position, spec in enumerate(specs):
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target is not None:
            specs[position] = dataclasses.replace(spec, kind=InputKind.BUFFER, persistent=True)
            constant = exported.constants.pop(spec.target)
            assert isinstance(constant, torch.Tensor)
            exported.state_dict[spec.target] = constant


def _tensors_of_its_own(export: Exported, model: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that the program uses and the model does not have: constants of its code.

    Raises NotPackable for a tensor that existed before tracing, because its changes would not be followed.
    """
    program, strange = export.program, set(map(memory_of, export.earlier))
    used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
    named = {**program.state_dict, **program.constants}
    own = {}
    for spec in program.graph_signature.input_specs:
        tensor = named.get(spec.target) if spec.target is not None and spec.arg.name in used else None
        if not isinstance(tensor, torch.Tensor) or _in_model(model, str(spec.target)) is not None:
            continue
        if memory_of(tensor) in strange:
            raise stranger(str(spec.target))
        own[str(spec.target)] = tensor.detach()
    return own


def _weights(names: Iterable[str], model: Any) -> Iterator[Weight]:
    """Yield the tensors that the program uses from the model.

    Raises NotPackable if the model does not have one of them.
    """
    shared: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for path, tensor in registered_tensors(model):
        shared[_memory_of(tensor)].append(path)
    for name in names:
        path, found = name.removeprefix(_MODEL), _in_model(model, name)
        if found is None:
            raise NotPackable(_not_in(model, name))
        yield Weight(
            name=name,
            path=path,
            dtype=str(found.dtype).removeprefix("torch."),
            shape=tuple(found.shape),
            stride=tuple(found.stride()),
            device_type=found.device.type,
            tied=tuple(other for other in shared[_memory_of(found)] if other != path),
        )


def _not_in(model: Any, name: str) -> str:
    """Return why a program cannot get a constant of this name from the model."""
    original, device = copied_from(name, (f"{_MODEL}{path}" for path, _tensor in registered_tensors(model)))
    if not original:
        return f"it needs {name}, which was not found in the model"
    path = original.removeprefix(_MODEL)
    return f"{path} is used on {device} but is on another device; a copy would not follow changes: move it to {device}"


def _memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that is equal for tensors with the same memory, of which the compiler keeps only one."""
    return tensor.data_ptr(), tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride()


def _in_model(model: Any, name: str) -> torch.Tensor | None:
    """Return the model's tensor that has this name in a program."""
    if not name.startswith(_MODEL):
        return None
    reached: Any = model
    for part in name.removeprefix(_MODEL).split("."):
        reached = getattr(reached, part, None)
    return reached if isinstance(reached, torch.Tensor) else None
