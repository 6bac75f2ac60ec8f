"""Describe the machine that a study runs on and name its results after it; used by the scripts of all studies."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from autocompile.host import environment
from autocompile.runtime.openvino.processor import level
from autocompile.workload.gpu import gpu_kind


def device_type() -> str:
    """Return the device for studies that can run on a GPU: "cuda" if torch finds a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def by_instructions(device: str = "cpu") -> str:
    """Name the GPU, or the processor with its highest instruction set: equal names can have different ones."""
    here = environment()
    return _gpu() if device == "cuda" else f"{here.cpu} {level()} {here.cores} cores"


def by_processor(device: str = "cpu") -> str:
    """Name the GPU, or the processor by its model."""
    here = environment()
    return _gpu() if device == "cuda" else f"{here.cpu.replace('(R)', '')} {here.cores} cores"


def by_cores(device: str = "cpu") -> str:
    """Name the GPU, or the processor by its number of cores only."""
    return _gpu() if device == "cuda" else f"{environment().cores}-core-cpu"


def _gpu() -> str:
    """Return torch's name of the GPU in use. NVML may list another GPU first, and a MIG slice has a different name."""
    return gpu_kind().name


def named(kind: str) -> str:
    """Return the file or folder name for results of this kind of machine and version of torch."""
    return re.sub(r"[^a-z0-9_.]+", "-", f"{kind} torch{environment().torch.split('+')[0]}".lower())


def results_path(directory: Path, kind: str, head: Mapping[str, Any]) -> Path:
    """Return the results file for this kind of machine and version of torch. A new file starts with the row `head`."""
    path = directory / f"{named(kind)}.jsonl"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(head) + "\n")
    return path


def described(*fields: str, **more: Any) -> dict[str, Any]:
    """Return a first row with these fields of `autocompile.core.environment.Environment`, and `more`."""
    here = environment()
    return {"kind": "machine", **{name: getattr(here, name) for name in fields}, **more}
