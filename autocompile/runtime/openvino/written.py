"""Export a model in OpenVINO's own format: the graph, and the weights next to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from autocompile.core.plan import Plan
from autocompile.runtime.base import NotPackable
from autocompile.runtime.example import Code
from autocompile.runtime.openvino.compile import own_precision, refuse_large_integers
from autocompile.runtime.openvino.convert import Converted, converted
from autocompile.runtime.openvino.growth import largest
from autocompile.runtime.openvino.library import core, in_a_line, openvino, options
from autocompile.runtime.openvino.package import TYPES
from autocompile.runtime.writer import Source, Wiring, Writer

_IMPORTS = """
import sys
from pathlib import Path

import numpy as np

sys.modules.setdefault("openvino_telemetry", None)  # otherwise it sends usage data
import openvino
"""
_SETUP = """
# By default it computes in a lower precision than float32 if the processor has instructions for it.
options = {{
{options}
}}
request = openvino.Core().compile_model(str(MODEL), "CPU", options).create_infer_request()
"""
_RUN = """
    request.infer(list(inputs))
    return [request.get_output_tensor(index).data.copy() for index in range(len(OUTPUTS))]
"""


class IntermediateWriter(Writer):
    """Writes the converted model, which is for any processor. Its precision is set when it is compiled."""

    def exported_as(self, plan: Plan) -> Plan:
        return replace(plan, autocast="")

    def write(self, source: Source, path: Path) -> Wiring:
        guards = source.guards
        most = largest(source.export.program, len(guards))
        refuse_large_integers(source.tensors, guards, most)
        made = converted(source.export.program, guards, source.program.axes)
        _name(made, source)
        try:
            openvino().save_model(made.model, str(path), compress_to_fp16=False)
        except RuntimeError as fault:
            raise NotPackable(f"OpenVINO cannot write it: {in_a_line(fault)}") from fault
        _try(path, source)
        limits = [
            f"no integer of `{name}` may be beyond {limit:,}, because OpenVINO computes integers in 32 bits"
            for name, guard, limit in zip(source.inputs, guards, most, strict=True)
            if guard.dtype == "int64"
        ]
        return Wiring(made.inputs, made.outputs, tuple(limits))

    def code(self, source: Source) -> Code:
        told = _options(source)
        if not source.plan.threads:
            del told["INFERENCE_NUM_THREADS"]
        return Code(
            needs="numpy and openvino",
            imports=_IMPORTS,
            setup=_SETUP.format(options="\n".join(f'    "{key}": {_quoted(value)},' for key, value in told.items())),
            run=_RUN,
        )


def _options(source: Source) -> dict[str, Any]:
    own = own_precision(source.export.program.state_dict.values())
    return options(TYPES[source.plan.autocast or own], source.plan.threads)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _name(made: Converted, source: Source) -> None:
    """Give inputs and outputs the names that the example and the documentation use."""
    for index, port in enumerate(made.model.outputs):
        port.get_tensor().set_names({source.outputs[made.outputs.index(index)]})
    for port, position in zip(made.model.inputs, made.inputs, strict=True):
        # An input that is also an output is one tensor with both names.
        port.get_tensor().set_names({source.inputs[position], *(set(source.outputs) & set(port.names))})


def _try(path: Path, source: Source) -> None:
    """Compile the file, which shows what the library cannot compile. Raises NotPackable."""
    told = {**_options(source), "INFERENCE_NUM_THREADS": source.plan.threads or 1}
    try:
        compiled = core().compile_model(str(path), "CPU", told)
    except RuntimeError as fault:
        raise NotPackable(f"OpenVINO cannot compile it: {in_a_line(fault)}") from fault
    taken = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    asked = TYPES.get(source.plan.autocast, taken)
    if taken != asked:
        raise NotPackable(f"OpenVINO computes in {taken} on this processor, not in {source.plan.autocast}")


WRITER = IntermediateWriter()
