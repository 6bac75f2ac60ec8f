"""Compile the check of the weights' addresses when the model is packed, because production has no compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

from autocompile.runtime.aot.placement import SOURCE

_NAME = "placement.so"
_LIMIT_S = 60.0


def compiled_placement(directory: Path) -> str:
    """Compile the check into `directory` and return its file name.

    Return "" if that fails; Python then does the check.
    """
    from torch._inductor.cpp_builder import get_cpp_compiler  # noqa: PLC0415  imports the compiler

    library, unfinished = directory / _NAME, directory / f"{_NAME}.unfinished"
    if library.exists():
        return _NAME
    torch_lib = Path(torch.__file__).parent / "lib"
    try:
        command = [get_cpp_compiler(), "-x", "c", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(unfinished)]
        subprocess.run([*command, f"-L{torch_lib}", "-ltorch_cpu"], capture_output=True, timeout=_LIMIT_S, check=True)
        unfinished.replace(library)
    except (OSError, RuntimeError, subprocess.SubprocessError):
        unfinished.unlink(missing_ok=True)
        return ""
    return _NAME
