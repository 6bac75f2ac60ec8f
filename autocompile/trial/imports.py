"""Torch's compiler packages, imported here first, and the seconds that this takes.

A process that compiles pays for it once. Children are forked with it paid, so it is added to what a
candidate that compiles needs to start.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

importlib.import_module("torch")  # everyone pays for torch itself, so it is not in the figure
_began = time.perf_counter()
for _name in ("torch._dynamo", "torch._inductor.codecache", "torch._inductor.compile_fx"):
    importlib.import_module(_name)
IMPORT_S = time.perf_counter() - _began


def keep_headers_in(directory: Path) -> None:
    """Have the compiler look for its precompiled headers there, and leave them there.

    By itself it has them in the system's temporary directory, where a run's own goes when the run ends.
    """
    codecache = sys.modules["torch._inductor.codecache"]
    if hasattr(codecache, "_HEADER_DIR"):
        vars(codecache).update(_HEADER_DIR=str(directory), _HEADER_LOCK_DIR=str(directory / "locks"))
