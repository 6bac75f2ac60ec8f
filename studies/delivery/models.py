"""Five models of different kinds, from the other studies: three from transformers, a stencil and a small CNN."""

import runpy
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "amortized"))

import workloads  # noqa: E402  of studies/amortized

# These workloads define no classes, so this file need not be importable in the process that loads a model.
_STARTUP = runpy.run_path(str(HERE.parent / "startup" / "workloads.py"))["WORKLOADS"]
MODELS = ("minilm", "mobilenet", "gpt", "stencil", "classifier")


def model_of(name: str) -> tuple[Any, Any]:
    """Return the model and its inputs, the same each time."""
    return _STARTUP[name]() if name in _STARTUP else workloads.workload(name)
