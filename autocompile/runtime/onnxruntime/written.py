"""Export a model as a portable ONNX graph with its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autocompile.core.program import TensorGuard
from autocompile.runtime.base import NotPackable
from autocompile.runtime.example import Code
from autocompile.runtime.onnxruntime.compile import run_once, values_of
from autocompile.runtime.onnxruntime.convert import converted
from autocompile.runtime.onnxruntime.library import PROVIDERS, Place, Unusable, entries, opened
from autocompile.runtime.onnxruntime.settings import settings_of
from autocompile.runtime.onnxruntime.words import not_opened
from autocompile.runtime.writer import Source, Wiring, Writer

_IMPORTS = """
import os
from pathlib import Path

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # must precede the import
import onnxruntime
"""
_SETUP = """
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_{level}
{threads}{entries}session = onnxruntime.InferenceSession(str(MODEL), options, providers=[{providers}])
"""
_RUN = "    return session.run(OUTPUTS, dict(zip(INPUTS, inputs, strict=True)))"


class OnnxWriter(Writer):
    """Writes the converted graph. The library rewrites it for the processor at hand when it opens the graph."""

    def write(self, source: Source, path: Path) -> Wiring:
        graph = converted(source.export.program, source.inputs, source.outputs)
        _forget_the_users_code(graph.model)
        _name_sizes(graph.model, source.guards)
        graph.save(path)
        try:
            session = opened(
                path, Place(source.plan.threads, source.device_type), settings_of(source.plan).graph_optimization
            )
            inputs, outputs = values_of(session.get_inputs()), values_of(session.get_outputs())
            run_once(session, inputs, source.tensors)
        except Unusable as fault:
            raise not_opened(str(fault)) from fault
        names = [value.name for value in outputs]
        if [value.name for value in inputs] != list(source.inputs) or names != list(source.outputs):
            raise NotPackable(f"its graph takes {len(inputs)} tensors and returns {names}, unlike the model")
        return Wiring(tuple(range(len(inputs))), tuple(range(len(outputs))))

    def code(self, source: Source) -> Code:
        threads = source.plan.threads
        here, others = PROVIDERS[source.device_type], PROVIDERS["cpu"]
        settings = settings_of(source.plan)
        given = entries(spins=settings.spinning)
        return Code(
            needs="numpy and onnxruntime" if source.device_type == "cpu" else "numpy and onnxruntime-gpu",
            imports=_IMPORTS,
            setup=_SETUP.format(
                level=settings.graph_optimization.upper(),
                threads=f"options.intra_op_num_threads = {threads}\n" if threads else "",
                entries="".join(f'options.add_session_config_entry("{key}", "{given[key]}")\n' for key in given),
                providers=", ".join(f'"{name}"' for name in dict.fromkeys((here, others))),
            ),
            run=_RUN,
        )


def _name_sizes(model: Any, guards: Sequence[TensorGuard]) -> None:
    """Give sizes that vary the names that the documentation uses; the converter numbers them."""
    from onnx_ir import Shape  # noqa: PLC0415  only needed to convert

    names = {
        str(dimension): size
        for value, guard in zip(model.graph.inputs, guards, strict=True)
        for dimension, size in zip(value.shape, guard.shape, strict=True)
        if isinstance(size, str)
    }
    within = [value for node in model.graph.all_nodes() for value in node.outputs]
    for value in (*model.graph.inputs, *within):
        if value.shape is not None and not all(isinstance(dimension, int) for dimension in value.shape):
            sizes = [one if isinstance(one, int) else _renamed(str(one), names) for one in value.shape]
            value.shape = Shape(sizes)


def _renamed(size: str, names: Mapping[str, str]) -> str:
    """Rename a size, which may be an expression of other sizes."""
    return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), size)


def _forget_the_users_code(model: object) -> None:
    """Remove the lines of the user's code, and the paths of its files, from a graph."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass  # noqa: PLC0415  only needed to convert

    ClearMetadataAndDocStringPass()(model)  # type: ignore[arg-type]


WRITER = OnnxWriter()
