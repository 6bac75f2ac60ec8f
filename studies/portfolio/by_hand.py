"""The usual optimizations of a model by hand, a few lines each: from a model and its inputs to a call."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from workloads import device_type

from autocompile.runtime.openvino.library import openvino as library
from autocompile.runtime.openvino.processor import computes_in

Call = Callable[[], Any]


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def eager(model: Any, inputs: Any) -> Call:
    """Call the unmodified model."""
    args, kwargs = arguments_of(inputs)
    return lambda: model(*args, **kwargs)


def eager_bf16(model: Any, inputs: Any) -> Call:
    """Call the model under autocast."""
    args, kwargs = arguments_of(inputs)

    def call() -> Any:
        with torch.autocast(device_type(), dtype=torch.bfloat16):
            return model(*args, **kwargs)

    return call


def compiled(model: Any, inputs: Any) -> Call:
    """Use `torch.compile(model)`."""
    return eager(torch.compile(model), inputs)


def compiled_bf16(model: Any, inputs: Any) -> Call:
    """The same under autocast."""
    return eager_bf16(torch.compile(model), inputs)


def reduce_overhead(model: Any, inputs: Any) -> Call:
    """Use `torch.compile(model, mode="reduce-overhead")`: with CUDA graphs."""
    return eager(torch.compile(model, mode="reduce-overhead"), inputs)


def reduce_overhead_bf16(model: Any, inputs: Any) -> Call:
    """The same under autocast."""
    return eager_bf16(torch.compile(model, mode="reduce-overhead"), inputs)


def max_autotune(model: Any, inputs: Any) -> Call:
    """Use `torch.compile(model, mode="max-autotune")`."""
    return eager(torch.compile(model, mode="max-autotune"), inputs)


def compiled_frozen_bf16(model: Any, inputs: Any) -> Call:
    """Use `torch.compile` with freezing, under autocast."""
    import torch._inductor.config

    torch._inductor.config.freezing = True  # noqa: SLF001
    try:
        call = eager_bf16(torch.compile(model), inputs)
        call()
    finally:
        torch._inductor.config.freezing = False  # noqa: SLF001
    return call


def aoti_frozen(model: Any, inputs: Any, dtype: torch.dtype | None = None) -> Call:
    """Use AOTInductor with freezing, under autocast if `dtype` is given."""

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with torch.autocast(device_type(), dtype=dtype, enabled=dtype is not None):
                return pytree.tree_leaves(self.model(*args, **kwargs))

    args, kwargs = arguments_of(inputs)
    exported = torch.export.export(Wrapped().eval(), args, kwargs, strict=False)
    package = str(Path(tempfile.mkdtemp()) / "model.pt2")
    torch._inductor.aoti_compile_and_package(exported, package_path=package, inductor_configs={"freezing": True})  # noqa: SLF001
    return eager(torch._inductor.aoti_load_package(package), inputs)  # noqa: SLF001


def aoti_frozen_bf16(model: Any, inputs: Any) -> Call:
    """The same in bfloat16."""
    return aoti_frozen(model, inputs, torch.bfloat16)


def openvino(model: Any, inputs: Any, precision: str = "f32") -> Call:
    """Use OpenVINO, optimized for latency."""
    ov = library()  # the library with its telemetry disabled
    args, kwargs = arguments_of(inputs)
    exported = torch.export.export(model, args, kwargs, strict=False)
    converted = ov.convert_model(exported)
    hints = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    program = ov.compile_model(converted, "CPU", hints)
    arrays = [tensor.numpy() for tensor in pytree.tree_leaves((args, kwargs))]
    request = program.create_infer_request()
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)


def openvino_bf16(model: Any, inputs: Any) -> Call:
    """The same in bfloat16."""
    return openvino(model, inputs, "bf16")


def onnxruntime(model: Any, inputs: Any) -> Call:
    """Use ONNX Runtime, with a model exported by torch's own exporter."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort

    args, kwargs = arguments_of(inputs)
    path = str(Path(tempfile.mkdtemp()) / "model.onnx")
    program = torch.onnx.export(model, args, kwargs=kwargs, dynamo=True, verbose=False)
    assert program is not None
    program.save(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    leaves = (tensor.numpy() for tensor in pytree.tree_leaves((args, kwargs)))
    arrays = dict(zip(names, leaves, strict=True))
    return lambda: session.run(None, arrays)


WAYS: dict[str, Callable[[Any, Any], Call]] = {
    way.__name__: way
    for way in (
        eager, eager_bf16, compiled, compiled_bf16, reduce_overhead, reduce_overhead_bf16, max_autotune,
        compiled_frozen_bf16, aoti_frozen, aoti_frozen_bf16, openvino, openvino_bf16, onnxruntime,
    )
}  # fmt: skip
_ON_GPU = (
    "eager", "eager_bf16", "compiled", "compiled_bf16", "reduce_overhead", "reduce_overhead_bf16", "max_autotune",
    "aoti_frozen",
)  # fmt: skip
_GPU_ONLY = ("compiled_bf16", "reduce_overhead", "reduce_overhead_bf16")


def ways(device: str) -> list[str]:
    """Return the ways that make sense on a device of this type; none in bfloat16 without instructions for it."""
    if device == "cuda":
        return list(_ON_GPU)
    return [way for way in WAYS if way not in _GPU_ONLY and ("bf16" not in way or computes_in("bfloat16"))]
