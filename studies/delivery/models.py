"""Five models of different kinds, from the other studies: three of transformers', a stencil and a small CNN."""

import runpy
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "amortized"))

import workloads  # noqa: E402  of studies/amortized

# These define no class of their own, so the file need not be importable where a model is loaded.
_STARTUP = runpy.run_path(str(HERE.parent / "startup" / "workloads.py"))["WORKLOADS"]
MODELS = ("minilm", "mobilenet", "gpt", "stencil", "classifier")


def model_of(name: str) -> tuple[Any, Any]:
    """Model and inputs, the same each time."""
    return _STARTUP[name]() if name in _STARTUP else workloads.workload(name)
