"""ONNX Runtime itself: import it, and open a graph with it. Does not import torch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The official builds report to their vendor, from a thread that starts at the import, and write a file into the user's
# cache. Moreover, a thread does not survive a fork.
_SILENT = ("ORT_DISABLE_TELEMETRY", "1")
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_LEVELS = {"none": "ORT_DISABLE_ALL", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
_LOG_NOTHING = 4
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from .*? failed:)?")
# The modules that torch's converter to ONNX needs. Running a graph does not need them.
CONVERTERS = ("onnx", "onnxscript")
# Smaller weights are stored in the graph itself.
_OUTSIDE_BYTES = 1024
# The suffix of the file with a graph's weights.
DATA_SUFFIX = ".data"


class Unusable(Exception):
    """ONNX Runtime cannot open or run a graph; the message gives the reason in one line."""


@dataclass(frozen=True)
class Place:
    """Where a graph runs: the device, the threads within an operator on a CPU, and whether they spin between calls."""

    threads: int
    device_type: str = "cpu"
    index: int = 0
    spins: bool = False


def entries(*, spins: bool) -> dict[str, str]:
    """Return the settings of a session that have no attribute.

    Within a call the library's threads always spin, because otherwise each operator would have to wake them. When the
    session is opened, all threads prepare the weights' layouts, instead of only one.
    """
    stopping = {} if spins else {"session.force_spinning_stop": "1"}
    return {**stopping, "session.prepack.enable_parallel": "1"}


def library() -> Any:
    """Return the module `onnxruntime`, which reports nothing unless the user asks for it. Raises ImportError."""
    os.environ.setdefault(*_SILENT)
    import onnxruntime  # noqa: PLC0415  only needed to run a graph

    return onnxruntime


def opened(path: Path, place: Place, level: str, save_as: Path | None = None) -> Any:
    """Return a session that runs the graph in `path`, rewritten up to `level`: `none`, `extended` or `all`.

    With `save_as`, the rewritten graph is written there, with its weights in a file of the same name plus
    `DATA_SUFFIX`. Raises Unusable.
    """
    own = library()
    provider = PROVIDERS[place.device_type]
    if provider not in own.get_available_providers():
        raise Unusable(f"the installed onnxruntime does not run on {place.device_type}")
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
    except Exception as fault:  # the library raises a different type for each status code, none of them public
        raise Unusable(in_one_line(fault)) from fault
    if provider not in session.get_providers():  # the library would go on without it
        raise Unusable(f"onnxruntime cannot use {place.device_type} here")
    return session


def in_one_line(fault: BaseException) -> str:
    """Return the library's message without its codes and source locations."""
    said = _CODE.sub("", str(fault).strip()).splitlines()
    return (said[0] if said else type(fault).__name__)[:400]


def _saving(save_as: Path | None) -> dict[str, str]:
    """Return the settings that put the weights of a written graph into a separate file."""
    if save_as is None:
        return {}
    prefix = "session.optimized_model_external_initializers"
    return {
        f"{prefix}_file_name": f"{save_as.name}{DATA_SUFFIX}",
        f"{prefix}_min_size_in_bytes": str(_OUTSIDE_BYTES),
    }
