"""What processes that trials run in need of every runtime: its imports, made ahead and timed, and a cache of their own.

Importing this module imports all of it. A process that builds with a runtime pays for its imports once. Children are
forked with them paid, so `IMPORT_S` is added to what a candidate of that runtime needs to start.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path

importlib.import_module("torch")  # everyone pays for torch itself, so it is not in the figures

from autocompile.runtime.building import runtime  # noqa: E402
from autocompile.runtime.catalogue import kinds  # noqa: E402


def _imported() -> dict[str, float]:
    took = {}
    for kind in kinds():
        own = runtime(kind.name)
        began = time.perf_counter()
        own.prepare()
        took[kind.name] = time.perf_counter() - began
    return took


# Seconds, by runtime.
IMPORT_S = _imported()


def cache_variables(directory: str) -> dict[str, str]:
    """Environment variables that make every runtime keep its cache there."""
    return {name: value for kind in kinds() for name, value in runtime(kind.name).cache_variables(directory).items()}


def keep_in(cache: str, headers: str) -> None:
    """Have this process keep its caches in one directory, and what belongs to the machine's compiler in another."""
    os.environ.update(cache_variables(cache))
    for kind in kinds():
        runtime(kind.name).keep_headers_in(Path(headers))
