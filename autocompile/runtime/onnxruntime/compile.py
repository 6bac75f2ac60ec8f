"""Convert a model to ONNX and let ONNX Runtime rewrite it: once when it is packed, instead of at each start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch.utils import _pytree as pytree

from autocompile.core.plan import Plan
from autocompile.core.program import Program
from autocompile.core.serde import to_plain
from autocompile.runtime.base import NotPackable
from autocompile.runtime.devices import computing_device
from autocompile.runtime.export import described, exported
from autocompile.runtime.onnxruntime.convert import convert
from autocompile.runtime.onnxruntime.faults import Inexpressible
from autocompile.runtime.onnxruntime.graph import Graph, Session, Value, this_processor
from autocompile.runtime.onnxruntime.library import DATA_SUFFIX, Place, Unusable, in_one_line, opened
from autocompile.runtime.onnxruntime.settings import settings_of
from autocompile.runtime.onnxruntime.words import not_opened
from autocompile.runtime.strangers import refuse_strangers
from autocompile.scratch import Scratch
from autocompile.workload.axes import FreeAxis
from autocompile.workload.samples import Sample

# The dtypes that NumPy has, too, by their names in ONNX. A graph is called through NumPy.
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{
        f"tensor({name})": name
        for name in ("float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}


def compile_ahead(
    model: Any, plan: Plan, sample: Sample, axes: Sequence[FreeAxis], directory: Path, name: str
) -> Program:
    """Convert `model`, and write the graphs to load into `directory`, each with its weights next to it.

    `sample` is one call with sizes within the axes' ranges. Raises NotPackable if the model cannot be exported or
    converted, or if ONNX Runtime cannot run it.
    """
    tensors = [leaf for leaf in pytree.tree_leaves((sample.args, sample.kwargs)) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise NotPackable("it is called without a tensor")
    device = computing_device(model, sample)
    place = Place(plan.threads or torch.get_num_threads(), device.type, device.index or 0)
    export = exported(model, plan, sample, axes)
    refuse_strangers(export.program, export.earlier, model)
    with Scratch() as scratch:
        converted = scratch / "converted.onnx"
        convert(export.program, converted)
        try:
            graphs, session = _rewritten(converted, place, settings_of(plan).graph_optimization, directory / name)
            inputs, outputs = values_of(session.get_inputs()), values_of(session.get_outputs())
            run_once(session, inputs, tensors)
        except Unusable as fault:
            raise not_opened(str(fault)) from fault
    record = Session(inputs, outputs, graphs, device.type, plan.threads, settings_of(plan).spinning)
    return replace(described(export, sample, axes, record.files, to_plain(record)), needs_model=False)


def _rewritten(converted: Path, place: Place, level: str, path: Path) -> tuple[tuple[Graph, ...], Any]:
    """Write the forms of the program, whose files begin with `path`; return them and a session that runs the first.

    At the highest level, convolutions are laid out for the vector instructions of this very processor. If that makes a
    difference, a second form for other processors is written. Raises Unusable.
    """
    portable, tailored = path.with_name(f"{path.name}.onnx"), path.with_name(f"{path.name}.tailored.onnx")
    session = opened(converted, place, "extended", save_as=portable)
    if level == "extended" or place.device_type != "cpu":
        return (_graph(portable),), session
    del session  # frees its copy of the weights
    session = opened(converted, place, "all", save_as=tailored)
    processor = this_processor()
    differs = _operators(tailored) != _operators(portable)
    if differs and processor:
        return (_graph(tailored, processor=processor), _graph(portable, level="all")), session
    for name in _graph(tailored).files:
        path.with_name(name).unlink()
    return (_graph(portable, level="all" if differs else "none"),), session


def _graph(path: Path, **fields: Any) -> Graph:
    """Describe the graph that was written to `path`. If all weights are small, there is no file for them."""
    data = path.with_name(f"{path.name}{DATA_SUFFIX}")
    if data.exists() and not data.stat().st_size:
        data.unlink()
    return Graph(path.name, data.name if data.exists() else "", **fields)


def _operators(path: Path) -> list[tuple[str, str]]:
    """Return the operators of a graph, in order."""
    import onnx  # noqa: PLC0415  only packing needs it

    return [(node.domain, node.op_type) for node in _nodes(onnx.load(path, load_external_data=False).graph)]


def _nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:  # branches and loop bodies
            for within in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(within)


def values_of(described: Sequence[Any]) -> tuple[Value, ...]:
    """Return the inputs or outputs of a session. Raises NotPackable for one that no call can pass."""
    for one in described:
        if one.type not in _DTYPES:
            raise Inexpressible(
                f"it takes or returns a {one.type}, but calls go through NumPy, which does not have this type"
            )
    return tuple(Value(one.name, _DTYPES[one.type]) for one in described)


def run_once(session: Any, inputs: Sequence[Value], tensors: Sequence[torch.Tensor]) -> None:
    """Run the session once, which shows what the library lacks for these sizes. Raises Unusable and NotPackable."""
    if len(inputs) != len(tensors):
        raise NotPackable(f"its graph takes {len(inputs)} tensors, but a call has {len(tensors)}")
    given = {value.name: tensor.detach().cpu().numpy() for value, tensor in zip(inputs, tensors, strict=True)}
    try:
        session.run(None, given)
    except Exception as fault:  # the library raises a different type for each status code, none of them public
        raise Unusable(in_one_line(fault)) from fault
