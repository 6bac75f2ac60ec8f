"""Compile a model with OpenVINO and store it in compiled form."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from autocompile.core.plan import Plan
from autocompile.core.program import Program, TensorGuard
from autocompile.core.serde import to_plain
from autocompile.runtime.base import NotPackable
from autocompile.runtime.export import described, exported
from autocompile.runtime.openvino.convert import Converted, converted
from autocompile.runtime.openvino.growth import largest
from autocompile.runtime.openvino.integers import is_within, too_large
from autocompile.runtime.openvino.library import core, in_a_line, options
from autocompile.runtime.openvino.package import TYPES, Package
from autocompile.runtime.openvino.processor import computes_in
from autocompile.runtime.openvino.results import computed
from autocompile.runtime.strangers import refuse_strangers
from autocompile.workload.axes import FreeAxis, leaves_of
from autocompile.workload.samples import Sample


def compile_ahead(
    model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
) -> Program:
    """Export and convert `model`, and store OpenVINO's compiled form as `directory`/`name`.blob, with weights.

    Loading a 50 MB model in compiled form takes some 50 to 150 ms less than loading it as it was converted, and leaves
    the weights in the mapped file. However, only the same version on the same kind of processor can load it. Raises
    NotPackable if the model cannot be exported or converted, or not in the plan's precision.
    """
    export = exported(model, replace(plan, autocast=""), sample, axes)
    refuse_strangers(export.program, export.earlier, model)
    file = f"{name}.blob"
    program = described(export, sample, axes, (file,), {})
    guards = [guard for guard in program.guards if isinstance(guard, TensorGuard)]
    most = largest(export.program, len(guards))
    refuse_large_integers([leaf for leaf in leaves_of(sample) if isinstance(leaf, torch.Tensor)], guards, most)
    made = converted(export.program, guards, program.axes)
    precision = TYPES[plan.autocast or own_precision(export.program.state_dict.values())]
    threads = plan.threads or torch.get_num_threads()
    compiled = _compiled(made, precision, threads, asked=bool(plan.autocast))
    (directory / file).write_bytes(_stored(compiled))
    own = Package(file, made.inputs, made.outputs, made.dtypes, computed(compiled), precision, plan.threads, most)
    return replace(program, own=to_plain(own), needs_model=False)


def refuse_large_integers(tensors: Sequence[torch.Tensor], guards: Sequence[TensorGuard], most: Sequence[int]) -> None:
    """Raise NotPackable if a call has integers that are larger than allowed."""
    for guard, tensor, limit in zip(guards, tensors, most, strict=True):
        if tensor.dtype is torch.int64 and not is_within(tensor.detach().numpy(), limit):
            raise NotPackable(too_large(guard.path, limit))


def own_precision(weights: Any) -> str:
    """Return the reduced dtype of a model whose weights all have it, if the processor computes in it; else float32."""
    dtypes = {str(weight.dtype).removeprefix("torch.") for weight in weights if weight.is_floating_point()}
    reduced = len(dtypes) == 1 and dtypes <= {"bfloat16", "float16"}
    return dtypes.pop() if reduced and all(map(computes_in, dtypes)) else "float32"


def _compiled(made: Converted, precision: str, threads: int, *, asked: bool) -> Any:
    """Return the library's compiled model. Raises NotPackable if it cannot compile it, or uses another precision."""
    try:
        compiled = core().compile_model(made.model, "CPU", options(precision, threads))
        taken = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        found = tuple(output.element_type.get_type_name() for output in compiled.outputs)
    except RuntimeError as fault:
        raise NotPackable(f"OpenVINO cannot compile it: {in_a_line(fault)}") from fault
    if asked and taken != precision:
        raise NotPackable(f"OpenVINO computes in {taken} on this processor, not in {precision}")
    expected = tuple(TYPES.get(dtype, dtype) for dtype in made.dtypes)
    if found != expected:
        raise NotPackable(f"OpenVINO returns outputs as {', '.join(found)}, but they are {', '.join(expected)}")
    return compiled


def _stored(compiled: Any) -> memoryview:
    """Return the library's stored form of it. Raises NotPackable."""
    stored = io.BytesIO()
    try:
        compiled.export_model(stored)
    except RuntimeError as fault:
        raise NotPackable(f"OpenVINO cannot store it: {in_a_line(fault)}") from fault
    return stored.getbuffer()
