"""Export a model as a program over a range of shapes, from which the compilers that work ahead of time start.

The exported program is a function of the call's tensors alone, as a flat list. Other arguments and the structure of the
outputs are stored separately. Therefore nothing depends on what a package format can store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from autocompile.core.literals import is_literal
from autocompile.core.plan import Plan
from autocompile.core.program import Axis, ConstantGuard, Program, TensorGuard
from autocompile.runtime.base import NotPackable
from autocompile.runtime.causal_masks import masks_as_given
from autocompile.runtime.devices import computing_device
from autocompile.runtime.explanations import EXPORTS, matched
from autocompile.runtime.strangers import tensors_in_memory
from autocompile.workload.axes import FreeAxis
from autocompile.workload.capture.script import own_place
from autocompile.workload.samples import Sample, named_leaves


@dataclass(frozen=True)
class Exported:
    """An exported program and the structure of its outputs.

    `output_spec` is the structure as torch describes it. `outputs` has one entry for each leaf of the output: None for
    the program's next tensor, or the Python literal of a leaf that is not a tensor. `earlier` are all tensors that
    existed before the program was traced.
    """

    program: ExportedProgram
    output_spec: Any
    outputs: tuple[str | None, ...]
    earlier: Sequence[torch.Tensor]


class _Traced:
    """What tracing finds out about the outputs.

    It is an object of its own because the exporter resets the attributes that a module gets during tracing.
    """

    spec: Any = None
    literals: tuple[str | None, ...] = ()

    def tensors_in(self, output: Any) -> list[torch.Tensor]:
        """Return the output's tensors and record its other leaves. Reject numbers that depend on tensor values."""
        leaves, self.spec = pytree.tree_flatten(output)
        self.literals = tuple(_literal(leaf) for leaf in leaves)
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


class _OverTensors(nn.Module):
    """The model as a function from a call's tensors to a flat tuple of tensors."""

    def __init__(self, model: Any, plan: Plan, sample: Sample) -> None:
        super().__init__()
        self.model = model
        self.traced = _Traced()
        self._device_type = computing_device(model, sample).type
        leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
        kept = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        # These values are held by a closure, because the exporter searches a module's attributes for tensors.
        self._call: Callable[..., Any] = lambda tensors: _called(self.model, kept, is_tensor, spec, tensors)
        self._autocast = getattr(torch, plan.autocast) if plan.autocast else None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self._autocast is None:
            return tuple(self.traced.tensors_in(self._call(tensors)))
        # Autocast is inside the program: the exporter would not record the casts of an autocast around it.
        with torch.autocast(self._device_type, dtype=self._autocast):
            outputs = self.traced.tensors_in(self._call(tensors))
        return tuple(output.float() if output.dtype is self._autocast else output for output in outputs)


def _called(model: Any, kept: list[Any], is_tensor: list[bool], spec: Any, tensors: Sequence[torch.Tensor]) -> Any:
    following = iter(tensors)
    leaves = [next(following) if tensor else leaf for tensor, leaf in zip(is_tensor, kept, strict=True)]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return model(*args, **kwargs)


def _literal(leaf: Any) -> str | None:
    if isinstance(leaf, torch.Tensor):
        return None
    if is_literal(leaf):
        return repr(leaf)
    if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise NotPackable("its output contains a number that a call computes, which no program can return")
    raise NotPackable(f"its output contains an object of class {type(leaf).__name__}, which no program can return")


def exported(model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis] = ()) -> Exported:
    """Export `model`, called like `sample`, for sizes in the ranges of `axes`.

    The plan's autocast is part of the program. Raises NotPackable. Its message has the reason, or the exporter's first
    lines; its `__cause__` is the exporter's exception.
    """
    earlier = tensors_in_memory()
    module = _OverTensors(model, plan, sample)
    program = _export(module, sample, axes)
    return Exported(program, module.traced.spec, module.traced.literals, earlier)


def described(
    export: Exported, sample: Sample, axes: Sequence[FreeAxis], files: tuple[str, ...], own: dict[str, Any]
) -> Program:
    """Return the record of a compiled program: the calls that it takes, and its runtime's `own` data.

    Raises NotPackable if JSON cannot hold what is needed to check a call or to rebuild an output.
    """
    return Program(
        positional=len(sample.args),
        keywords=tuple(sample.kwargs),
        input_spec=_spec_text(pytree.tree_structure((sample.args, sample.kwargs)), "its arguments"),
        guards=_guards(sample, axes),
        axes=tuple(Axis(axis.name, axis.low, axis.high) for axis in axes),
        output_spec=_spec_text(export.output_spec, "its output"),
        outputs=export.outputs,
        files=files,
        own=own,
    )


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
        with torch.no_grad(), masks_as_given():
            return torch.export.export(module, tensors, dynamic_shapes={"tensors": shapes}, strict=False)
    except NotPackable:
        raise
    except Exception as fault:  # the exporter raises dozens of types
        raise _not_packable(fault) from fault


def _not_packable(fault: BaseException) -> NotPackable:
    """Return the reason, if it is known, and the line of the user's code; otherwise the exporter's first lines."""
    row, groups = matched(EXPORTS, str(fault))
    if row is not None:
        return NotPackable(f"{row.reason.format(*groups)}{own_place(fault)}; {row.advice}", row.cause or "export")
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return NotPackable(f"{type(fault).__name__}: {' '.join(lines[:2])[:400]}{own_place(fault)}", "export")


def _guards(sample: Sample, axes: Sequence[FreeAxis]) -> tuple[TensorGuard | ConstantGuard, ...]:
    guards: list[TensorGuard | ConstantGuard] = []
    names = {place: axis.name for axis in axes for place in axis.places}
    for position, (path, leaf) in enumerate(named_leaves((sample.args, sample.kwargs))[0]):
        where = path.replace("[0]", "args", 1) if path.startswith("[0]") else path.replace("[1]", "kwargs", 1)
        if isinstance(leaf, torch.Tensor):
            guards.append(_tensor_guard(where, leaf, {axis: n for (i, axis), n in names.items() if i == position}))
        elif is_literal(leaf):
            guards.append(ConstantGuard(path=where, literal=repr(leaf)))
        else:
            raise NotPackable(f"argument {where} is a {type(leaf).__name__}, which cannot be compared at a call")
    return tuple(guards)


def _tensor_guard(where: str, leaf: torch.Tensor, names: dict[int, str]) -> TensorGuard:
    if type(leaf) not in (torch.Tensor, nn.Parameter) or leaf.layout is not torch.strided or leaf.is_complex():
        raise NotPackable(f"argument {where} is a {type(leaf).__name__} of {leaf.dtype} and {leaf.layout}")
    shape = tuple(names.get(axis, size) for axis, size in enumerate(leaf.shape))
    dtype = str(leaf.dtype).removeprefix("torch.")
    on = leaf.device.type
    if leaf.is_contiguous():
        return TensorGuard(path=where, dtype=dtype, shape=shape, layout="contiguous", device_type=on)
    if leaf.dim() == 4 and leaf.is_contiguous(memory_format=torch.channels_last):
        return TensorGuard(path=where, dtype=dtype, shape=shape, layout="channels_last", device_type=on)
    if names:
        raise NotPackable(f"argument {where} is not contiguous, and has a size that differs from call to call")
    stride = tuple(leaf.stride())
    return TensorGuard(path=where, dtype=dtype, shape=shape, layout="strided", stride=stride, device_type=on)


def _spec_text(spec: Any, whose: str) -> str:
    try:
        return pytree.treespec_dumps(spec)
    except Exception as fault:  # a container class of the user's own
        raise NotPackable(f"{whose} cannot be described: {fault}") from fault
