"""An exported program, compiled ahead by AOTInductor, its weights left outside."""

from __future__ import annotations

import dataclasses
import gc
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serde import to_plain
from autocompile.runtime.aot.compile_placement import compiled_placement
from autocompile.runtime.aot.package import Package, Weight
from autocompile.runtime.aot.program import runner_of
from autocompile.runtime.aot.settings import settings_of
from autocompile.runtime.base import NotPackable
from autocompile.runtime.export import described, exported
from autocompile.runtime.model_watch import registered_tensors
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample

# The compiler would write small tensors into the code, biases among them, and fold what is computed of uniform ones.
_WEIGHTS_STAY_OUTSIDE = {
    "aot_inductor.package_constants_in_so": False,
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
}


def compile_ahead(
    model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
) -> Program:
    """Export and compile `model` into `directory`/`name`.pt2, its weights left outside.

    `sample` is one call with sizes within the axes' ranges. Raises NotPackable where the model cannot be exported so,
    and whatever the compiler raises.
    """
    from torch._inductor import aoti_compile_and_package  # noqa: PLC0415

    outside = _tensors_in_memory()
    export = exported(model, plan, sample, axes)
    _as_buffers(export.program)
    package = directory / f"{name}.pt2"
    aoti_compile_and_package(
        export.program,
        package_path=str(package),
        inductor_configs={**settings_of(plan).options, **_WEIGHTS_STAY_OUTSIDE},
    )
    weights, lifted = _weights(export.program, package, model, outside)
    constants_file = ""
    if lifted:
        from safetensors.torch import save_file  # noqa: PLC0415

        constants_file = f"{name}.constants.safetensors"
        save_file(lifted, directory / constants_file)
    own = Package(package.name, weights, constants_file, compiled_placement(directory))
    program = described(export, sample, axes, own.files, to_plain(own))
    return msgspec.structs.replace(program, needs_model=not all(weight.lifted for weight in weights))


def _as_buffers(exported: ExportedProgram) -> None:
    """Have every constant keep its name: the compiler numbers constants, and names buffers."""
    specs = exported.graph_signature.input_specs
    for position, spec in enumerate(specs):
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target is not None:
            specs[position] = dataclasses.replace(spec, kind=InputKind.BUFFER, persistent=True)
            constant = exported.constants.pop(spec.target)
            assert isinstance(constant, torch.Tensor)
            exported.state_dict[spec.target] = constant


def _weights(
    exported: ExportedProgram, package: Path, model: Any, outside: Sequence[torch.Tensor]
) -> tuple[tuple[Weight, ...], dict[str, torch.Tensor]]:
    """What the program takes from the model, and what it takes from the artifact: constants of its code."""
    held = {tensor.untyped_storage().data_ptr() for tensor in outside}
    named = {**exported.state_dict, **exported.constants}
    weights, lifted = [], {}
    shared: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for path, tensor in registered_tensors(model):
        shared[_memory_of(tensor)].append(path)
    for name in runner_of(str(package)).get_constant_fqns():
        path = name.removeprefix("model.")
        live = _reached(model, path) if name.startswith("model.") else None
        if live is None:
            constant = named.get(name)
            if not isinstance(constant, torch.Tensor):
                raise NotPackable(f"it needs {name}, which cannot be found in the model")
            if constant.untyped_storage().data_ptr() in held:
                raise NotPackable("it takes a tensor from outside of itself (a global or a closure)")
            lifted[name] = constant.detach().clone().contiguous()
        tensor = lifted[name] if live is None else live
        weights.append(
            Weight(
                name=name,
                path=path,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                lifted=live is None,
                tied=() if live is None else tuple(other for other in shared[_memory_of(live)] if other != path),
            )
        )
    return tuple(weights), lifted


def _memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are one in memory, of which the compiler keeps one."""
    return tensor.data_ptr(), tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride()


def _reached(model: Any, path: str) -> torch.Tensor | None:
    reached: Any = model
    for part in path.split("."):
        reached = getattr(reached, part, None)
    return reached if isinstance(reached, torch.Tensor) else None


def _tensors_in_memory() -> list[torch.Tensor]:
    """Every tensor that is there before tracing: a constant among them belongs to somebody else."""
    return [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, nn.Parameter)]
