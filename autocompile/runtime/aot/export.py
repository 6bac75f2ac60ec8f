"""A model as one compiled program over a range of shapes: torch.export, then AOTInductor.

The program is a function of the call's tensors alone, flattened; what else the arguments hold, and the
structure of the outputs, is kept beside it. So nothing depends on what torch's own package format can write.
"""

from __future__ import annotations

import dataclasses
import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from autocompile.core.manifest import Axis, ConstantGuard, Program, TensorGuard, Weight
from autocompile.core.plan import Plan
from autocompile.runtime.aot.compile_placement import compiled_placement
from autocompile.runtime.aot.program import registered_tensors, runner_of
from autocompile.runtime.explanations import EXPORTS, matched
from autocompile.workload.axes import FreeAxis
from autocompile.workload.capture.script import own_place
from autocompile.workload.samples import Sample, named_leaves

# Of the compiler's options those that a package cannot have: constants stay outside, graphs are recorded at run time.
_NOT_IN_A_PACKAGE = ("freezing", "triton.cudagraphs")
# The compiler would write small tensors into the code, biases among them, and fold what is computed of uniform ones.
_WEIGHTS_STAY_OUTSIDE = {
    "aot_inductor.package_constants_in_so": False,
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
}
_LITERALS = (type(None), bool, int, float, str, bytes)
_NOT_FINITE = ("nan", "inf", "-inf")


class NotExportable(Exception):
    """Why there can be no such program, in one line."""


@dataclass
class _Seen:
    """What tracing finds out about the outputs."""

    spec: Any = None
    literals: list[str | None] = field(default_factory=list)


class _OverTensors(nn.Module):
    """The model as a function of a call's tensors, giving a flat tuple of tensors."""

    def __init__(self, model: Any, plan: Plan, sample: Sample, seen: _Seen) -> None:
        super().__init__()
        self.model = model
        self._device_type = _device_of(sample)
        leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
        kept = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        # In a function, as what a module holds is looked through for tensors by the exporter.
        self._call: Callable[..., Any] = lambda tensors: _called(self.model, kept, is_tensor, spec, tensors)
        self._autocast = getattr(torch, plan.autocast) if plan.autocast else None
        self._note: Callable[..., list[torch.Tensor]] = lambda output: _noted(output, seen)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self._autocast is None:
            return tuple(self._note(self._call(tensors)))
        # Within the program, as the exporter records what is called, and not what autocast makes of it.
        with torch.autocast(self._device_type, dtype=self._autocast):
            outputs = self._note(self._call(tensors))
        return tuple(output.float() if output.dtype is self._autocast else output for output in outputs)


def _called(model: Any, kept: list[Any], is_tensor: list[bool], spec: Any, tensors: Sequence[torch.Tensor]) -> Any:
    following = iter(tensors)
    leaves = [next(following) if tensor else leaf for tensor, leaf in zip(is_tensor, kept, strict=True)]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return model(*args, **kwargs)


def _noted(output: Any, seen: _Seen) -> list[torch.Tensor]:
    leaves, seen.spec = pytree.tree_flatten(output)
    seen.literals = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            seen.literals.append(None)
        elif is_literal(leaf):
            seen.literals.append(repr(leaf))
        else:
            raise NotExportable(
                f"its output holds an object of class {type(leaf).__name__}, which no program can return"
            )
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def compile_ahead(
    model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
) -> Program:
    """Export and compile `model` into `directory`/`name`.pt2, its weights left outside.

    `sample` is one call with sizes within the axes' ranges. Raises NotExportable, with the exporter's own
    first line, where the model cannot be exported so, and whatever the compiler raises.
    """
    from torch._inductor import aoti_compile_and_package  # noqa: PLC0415

    seen = _Seen()
    outside = _tensors_in_memory()
    exported = _export(_OverTensors(model, plan, sample, seen), sample, axes)
    _as_buffers(exported)
    package = directory / f"{name}.pt2"
    options = {key: value for key, value in plan.options.items() if key not in _NOT_IN_A_PACKAGE}
    aoti_compile_and_package(
        exported,
        package_path=str(package),
        inductor_configs={**options, **_WEIGHTS_STAY_OUTSIDE},
    )
    weights, lifted = _weights(exported, package, model, outside)
    constants_file = ""
    if lifted:
        from safetensors.torch import save_file  # noqa: PLC0415

        constants_file = f"{name}.constants.safetensors"
        save_file(lifted, directory / constants_file)
    args, kwargs = sample.args, sample.kwargs
    return Program(
        file=package.name,
        positional=len(args),
        keywords=tuple(kwargs),
        input_spec=_spec_text(pytree.tree_structure((args, kwargs)), "its arguments"),
        guards=_guards(sample, axes),
        axes=tuple(Axis(axis.name, axis.low, axis.high) for axis in axes),
        weights=weights,
        constants_file=constants_file,
        output_spec=_spec_text(seen.spec, "its output"),
        outputs=tuple(seen.literals),
        placement_file=compiled_placement(directory),
    )


def try_export(model: Any, plan: Plan, sample: Sample) -> None:
    """Export for exactly this sample's sizes, and keep nothing. Raises NotExportable, with its cause."""
    _export(_OverTensors(model, plan, sample, _Seen()), sample, ())


def _export(module: nn.Module, sample: Sample, axes: Sequence[FreeAxis]) -> ExportedProgram:
    dims = {axis.name: Dim(axis.name, min=axis.low, max=axis.high) for axis in axes}
    leaves = pytree.tree_leaves((sample.args, sample.kwargs))
    shapes = tuple(
        {axis: dims[free.name] for free in axes for leaf, axis in free.places if leaf == position} or None
        for position, one in enumerate(leaves)
        if isinstance(one, torch.Tensor)
    )
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    try:
        with torch.no_grad():
            return torch.export.export(module, tensors, dynamic_shapes={"tensors": shapes}, strict=False)
    except NotExportable:
        raise
    except Exception as fault:  # the exporter raises dozens of types
        raise NotExportable(_in_words(fault)) from fault


def _in_words(fault: BaseException) -> str:
    """The reason, if it is a known one, and the line of the user's code; else the exporter's first lines."""
    row, groups = matched(EXPORTS, str(fault))
    if row is not None:
        return f"{row.reason.format(*groups)}{own_place(fault)}; {row.advice}"
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return f"{type(fault).__name__}: {' '.join(lines[:2])[:400]}{own_place(fault)}"


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
                raise NotExportable(f"it needs {name}, which cannot be found in the model")
            if constant.untyped_storage().data_ptr() in held:
                raise NotExportable("it takes a tensor from outside of itself (a global or a closure)")
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
    found: Any = model
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, torch.Tensor) else None


def _tensors_in_memory() -> list[torch.Tensor]:
    """Every tensor that is there before tracing: a constant among them belongs to somebody else."""
    return [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, nn.Parameter)]


def _guards(sample: Sample, axes: Sequence[FreeAxis]) -> tuple[TensorGuard | ConstantGuard, ...]:
    guards: list[TensorGuard | ConstantGuard] = []
    names = {place: axis.name for axis in axes for place in axis.places}
    for position, (where, leaf) in enumerate(named_leaves((sample.args, sample.kwargs))[0]):
        if isinstance(leaf, torch.Tensor):
            guards.append(_tensor_guard(where, leaf, {axis: n for (i, axis), n in names.items() if i == position}))
        elif is_literal(leaf):
            guards.append(ConstantGuard(path=where, literal=repr(leaf)))
        else:
            raise NotExportable(f"argument {where} is a {type(leaf).__name__}, which cannot be compared at a call")
    return tuple(guards)


def is_literal(leaf: Any) -> bool:
    """Whether it can be kept beside a program as Python writes it."""
    return type(leaf) in _LITERALS and repr(leaf) not in _NOT_FINITE


def _tensor_guard(where: str, leaf: torch.Tensor, names: dict[int, str]) -> TensorGuard:
    if type(leaf) not in (torch.Tensor, nn.Parameter) or leaf.layout is not torch.strided or leaf.is_complex():
        raise NotExportable(f"argument {where} is a {type(leaf).__name__} of {leaf.dtype} and {leaf.layout}")
    shape = tuple(names.get(axis, size) for axis, size in enumerate(leaf.shape))
    dtype = str(leaf.dtype).removeprefix("torch.")
    if leaf.is_contiguous():
        return TensorGuard(path=where, dtype=dtype, shape=shape, layout="contiguous")
    if leaf.dim() == 4 and leaf.is_contiguous(memory_format=torch.channels_last):
        return TensorGuard(path=where, dtype=dtype, shape=shape, layout="channels_last")
    if names:
        raise NotExportable(f"argument {where} is not contiguous, and has a size that differs from call to call")
    return TensorGuard(path=where, dtype=dtype, shape=shape, layout="strided", stride=tuple(leaf.stride()))


def _spec_text(spec: Any, whose: str) -> str:
    try:
        return pytree.treespec_dumps(spec)
    except Exception as fault:  # a container of the user's own
        raise NotExportable(f"{whose} cannot be described: {fault}") from fault


def _device_of(sample: Sample) -> str:
    leaves = pytree.tree_leaves((sample.args, sample.kwargs))
    return next(leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor))
