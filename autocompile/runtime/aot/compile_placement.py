"""The check of where a model's weights lie, compiled: production has no compiler, and packing has one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

from autocompile.runtime.aot.placement import SOURCE

_NAME = "placement.so"
_LIMIT_S = 60.0


def compiled_placement(directory: Path) -> str:
    """The library's name in `directory`, where it is put; "" if it cannot be compiled, and Python has to look."""
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
