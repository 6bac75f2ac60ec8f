"""ONNX Runtime, as the search, the judge and the packer see it. Does not import torch."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from autocompile.core.outcome import Failure
from autocompile.core.plan import Plan
from autocompile.runtime.format import Format
from autocompile.runtime.kind import Kind, Lines
from autocompile.runtime.onnxruntime.dimensions import DIMENSIONS, NAME
from autocompile.runtime.onnxruntime.snippet import lines_of
from autocompile.runtime.onnxruntime.usual import USUAL
from autocompile.space.dimension import Dimension
from autocompile.space.surroundings import Surroundings
from autocompile.space.usual import Feature, Usual

# The cause of failures that all plans share, because the same model is converted.
INEXPRESSIBLE = "inexpressible"
# The distributions that provide the module, by type of device.
_WITH_CUDA, _WITHOUT = "onnxruntime-gpu", "onnxruntime"
_ON_DEVICE = {"cpu": (_WITH_CUDA, _WITHOUT), "cuda": (_WITH_CUDA,)}

_ONNX = Format(
    name="onnx",
    meaning="a portable graph of ONNX, run by ONNX Runtime",
    file="model.onnx",
    implementation="autocompile.runtime.onnxruntime.written",
    needs=(("onnx",), ("onnxscript",), (_WITHOUT, _WITH_CUDA)),
)


class OnnxRuntimeKind(Kind):
    """An ONNX graph with its own copy of the weights, in a layout that suits the library."""

    name = NAME
    meaning = "the model converted to ONNX, run by ONNX Runtime"
    implementation = "autocompile.runtime.onnxruntime.runtime"
    compiles = "build"
    packs_as = "load"
    takes = ("threads", "batch", "sizes")
    has_own_threads = True
    library = _WITHOUT
    extra = "onnx"
    formats = (_ONNX,)
    arrays = "autocompile.runtime.onnxruntime.arrays"

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return DIMENSIONS

    @property
    def usual(self) -> dict[Feature, Usual]:
        return USUAL

    def problem(self, around: Surroundings) -> str:
        return self.lacks(around.device_type)

    def lacks(self, device_type: str) -> str:
        brings = _ON_DEVICE.get(device_type)
        if brings is None:
            return f"it does not run on {device_type}"
        if any(map(_version, brings)):
            return ""
        return f"{brings[-1]} is not installed; pip install {brings[-1]}"

    def distribution(self, device_type: str) -> str:
        """Return the installed distribution, because two of them write the same files; else the one for this device."""
        own = _ON_DEVICE.get(device_type, (_WITHOUT,))
        return next((name for name in own if _version(name)), own[-1])

    def version(self) -> str:
        return next(filter(None, map(_version, (_WITH_CUDA, _WITHOUT))), "")

    def holds_weights(self, _plan: Plan) -> bool:
        return True

    def lines(self, plan: Plan) -> Lines:
        return lines_of(plan)

    def fails_alike(self, failure: Failure, plan: Plan, other: Plan) -> bool:
        inexpressible = failure.cause == INEXPRESSIBLE and plan.batch == other.batch
        return inexpressible or super().fails_alike(failure, plan, other)


@cache
def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


KIND = OnnxRuntimeKind()
