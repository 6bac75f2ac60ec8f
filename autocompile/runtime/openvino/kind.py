"""OpenVINO, as the search, the judge and the packer see it. Does not import torch."""

from __future__ import annotations

from autocompile.core.plan import Plan
from autocompile.runtime.format import Format
from autocompile.runtime.kind import Kind, Lines
from autocompile.runtime.openvino.processor import computes_in, level
from autocompile.runtime.openvino.snippet import lines_of
from autocompile.runtime.openvino.usual import NAME, USUAL
from autocompile.space.dimension import Values
from autocompile.space.surroundings import Surroundings
from autocompile.space.usual import Feature, Usual

_REDUCED = {"bf16": "bfloat16", "fp16": "float16"}

_IR = Format(
    name="openvino",
    meaning="OpenVINO's own form of a model, for its CPU device",
    file="model.xml",
    implementation="autocompile.runtime.openvino.written",
    needs=(("openvino",),),
)


class OpenVinoKind(Kind):
    """The model converted for OpenVINO, with its own copy of the weights.

    The library chooses layouts itself. Its other options, apart from precision and threads, are for several calls at a
    time, or changed nothing when calls come one by one. Therefore this runtime has no dimensions of its own.
    """

    name = NAME
    meaning = "a program that OpenVINO runs on the CPU, with its own kernels and threads"
    implementation = "autocompile.runtime.openvino.runtime"
    compiles = "build"
    packs_as = "load"
    takes = ("amp", "threads", "batch", "sizes")
    does_itself = ("amp",)  # it chooses which operators compute in the reduced precision
    has_own_threads = True
    library = "openvino"
    extra = "openvino"
    formats = (_IR,)
    arrays = "autocompile.runtime.openvino.arrays"

    @property
    def usual(self) -> dict[Feature, Usual]:
        return USUAL

    def problem(self, around: Surroundings) -> str:
        if around.device_type == "cpu":
            return ""
        return f"it runs on a CPU only, but the workload is on {around.device_type}"

    def version(self) -> str:
        """Return the library's version and the extension that programs are stored for, because both must match."""
        installed = super().version()
        return f"{installed} for {level()}" if installed and level() else installed

    def holds_weights(self, _plan: Plan) -> bool:
        return True

    def conflict(self, values: Values, _around: Surroundings) -> str:
        dtype = _REDUCED.get(str(values["amp"]), "")
        return "" if computes_in(dtype) else f"this processor has no {dtype} instructions that OpenVINO can use"

    def lines(self, plan: Plan) -> Lines:
        return lines_of(plan)


KIND = OpenVinoKind()
