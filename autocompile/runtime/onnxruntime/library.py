"""ONNX Runtime itself: how it is imported, and how it opens a graph. No torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Its official builds report to their vendor, from a thread that starts with the import, and leave a file in the user's
# cache. A thread does not survive a fork either.
_SILENT = ("ORT_DISABLE_TELEMETRY", "1")
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_LEVELS = {"none": "ORT_DISABLE_ALL", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
_LOG_NOTHING = 4
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed:)?")
# What torch's converter to ONNX needs, and running does not.
CONVERTERS = ("onnx", "onnxscript")
# Smaller weights are kept in the graph itself.
_OUTSIDE_BYTES = 1024
# What the file with a graph's weights is named after it.
DATA_SUFFIX = ".data"


class Unusable(Exception):
    """ONNX Runtime cannot open or run a graph; says why, in one line."""


@dataclass(frozen=True)
class Place:
    """Where a graph runs: on a device, on a CPU with so many threads within an operator, that spin between calls."""

    threads: int
    device_type: str = "cpu"
    index: int = 0
    spins: bool = False


def entries(*, spins: bool) -> dict[str, str]:
    """Settings of a session that have no attribute.

    Within a call its threads always spin: otherwise each operator would have to wake them. When it is opened, all of
    them lay out the weights, not one.
    """
    stopping = {} if spins else {"session.force_spinning_stop": "1"}
    return {**stopping, "session.prepack.enable_parallel": "1"}


def library() -> Any:
    """The module `onnxruntime`, which reports nothing unless the user asks for it. Raises ImportError."""
    os.environ.setdefault(*_SILENT)
    import onnxruntime  # noqa: PLC0415  only what runs a graph needs it

    return onnxruntime


def opened(path: Path, place: Place, level: str, save_as: Path | None = None) -> Any:
    """A session that runs the graph in `path`, rewritten as far as `level` says: `none`, `extended` or `all`.

    `save_as`: where the rewritten graph is written to, with its weights beside it in a file of the same name and
    `DATA_SUFFIX`. Raises Unusable.
    """
    own = library()
    provider = PROVIDERS[place.device_type]
    if provider not in own.get_available_providers():
        raise Unusable(f"the onnxruntime that is installed does not run on {place.device_type}")
    options = own.SessionOptions()
    options.graph_optimization_level = getattr(own.GraphOptimizationLevel, _LEVELS[level])
    options.intra_op_num_threads, options.inter_op_num_threads = place.threads, 1
    options.log_severity_level = _LOG_NOTHING
    for key, value in {**entries(spins=place.spins), **_saving(save_as)}.items():
        options.add_session_config_entry(key, value)
    if save_as is not None:
        options.optimized_model_filepath = str(save_as)
    chosen = [provider] if place.device_type == "cpu" else [(provider, {"device_id": place.index}), PROVIDERS["cpu"]]
    try:
        session = own.InferenceSession(str(path), options, providers=chosen)
    except Exception as fault:  # it raises a type for each of its status codes, none of them public
        raise Unusable(in_one_line(fault)) from fault
    if provider not in session.get_providers():  # it would go on without
        raise Unusable(f"onnxruntime cannot use {place.device_type} here")
    return session


def in_one_line(fault: BaseException) -> str:
    """What the library says, without its codes and places in its source."""
    said = _CODE.sub("", str(fault).strip()).splitlines()
    return (said[0] if said else type(fault).__name__)[:400]


def _saving(save_as: Path | None) -> dict[str, str]:
    """What keeps the weights of a graph that is written in a file of their own."""
    if save_as is None:
        return {}
    prefix = "session.optimized_model_external_initializers"
    return {
        f"{prefix}_file_name": f"{save_as.name}{DATA_SUFFIX}",
        f"{prefix}_min_size_in_bytes": str(_OUTSIDE_BYTES),
    }
