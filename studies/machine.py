"""The machine that a study runs on, by which its results are named; for the scripts of all studies."""

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
    """Where studies run that have a GPU's part."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def by_instructions(device: str = "cpu") -> str:
    """A processor with the instructions that matter most, as those of one name may differ in them; or the GPU."""
    here = environment()
    return _gpu() if device == "cuda" else f"{here.cpu} {level()} {here.cores} cores"


def by_processor(device: str = "cpu") -> str:
    """A processor by its model; or the GPU."""
    here = environment()
    return _gpu() if device == "cuda" else f"{here.cpu.replace('(R)', '')} {here.cores} cores"


def by_cores(device: str = "cpu") -> str:
    """A processor by its cores alone; or the GPU."""
    return _gpu() if device == "cuda" else f"{environment().cores}-core-cpu"


def _gpu() -> str:
    """The one in use, by torch's name for it: NVML's first may be another, and a slice has a name of its own."""
    return gpu_kind().name


def named(kind: str) -> str:
    """A file's or a folder's name for results of this kind of machine and version of torch."""
    return re.sub(r"[^a-z0-9_.]+", "-", f"{kind} torch{environment().torch.split('+')[0]}".lower())


def results_path(directory: Path, kind: str, head: Mapping[str, Any]) -> Path:
    """The file of this kind of machine and version of torch, which begins with `head`, where it is new."""
    path = directory / f"{named(kind)}.jsonl"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(head) + "\n")
    return path


def described(*fields: str, **more: Any) -> dict[str, Any]:
    """A first row that says so much of the machine, of `autocompile.core.environment.Environment`."""
    here = environment()
    return {"kind": "machine", **{name: getattr(here, name) for name in fields}, **more}
