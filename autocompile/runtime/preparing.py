"""Prepare the processes in which trials run for all runtimes: import them, time the imports, and give them caches.

Importing this module imports all runtimes. A process that builds with a runtime pays for its imports once. Trials are
forked after the imports, so `IMPORT_S` is added to the time that a candidate of that runtime needs to start. A runtime
whose library is missing is left out, and `MISSING` has the reason.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

importlib.import_module("torch")  # every runtime needs torch itself, so the figures leave it out
# They also leave out the modules of this package that all runtimes share.
for _shared in ("ahead", "outputs", "padding"):
    importlib.import_module(f"autocompile.runtime.{_shared}")

from autocompile.runtime.building import close, runtime, usable  # noqa: E402
from autocompile.runtime.catalogue import kinds  # noqa: E402


def _imported() -> tuple[dict[str, float], dict[str, str]]:
    took, missing = {}, {}
    for kind in kinds():
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():  # if warnings are errors, a deprecation would exclude a runtime
                warnings.simplefilter("ignore")
                runtime(kind.name).prepare()
        except Exception as fault:  # a library may raise anything, and must not stop the process for others
            missing[kind.name] = close(kind.name, fault)
        else:
            took[kind.name] = time.perf_counter() - began
    return took, missing


# The import time in seconds by runtime, and why the other runtimes cannot be used.
IMPORT_S, MISSING = _imported()


def cache_variables(directory: str) -> dict[str, str]:
    """Return the environment variables that make every runtime keep its cache in a directory of its name there."""
    named = (own.cache_variables(f"{directory}/{name}") for name, own in usable().items())
    return {variable: value for variables in named for variable, value in variables.items()}


# The directory in which this process keeps its caches, once it is known.
_KEPT_IN: list[str] = []
_ASIDE = "aside"


def keep_in(cache: str, headers: str) -> None:
    """Make this process keep its caches in one directory, and files of the machine's compiler in another."""
    _KEPT_IN[:] = [cache]
    os.environ.update(cache_variables(cache))
    for own in usable().values():
        own.keep_headers_in(Path(headers))


@contextmanager
def compiling_aside() -> Iterator[None]:
    """Keep what is compiled meanwhile in a separate cache, which is not carried along with the process's own cache."""
    if not _KEPT_IN:
        yield
        return
    beside = cache_variables(f"{_KEPT_IN[0]}/{_ASIDE}")
    before = {name: os.environ[name] for name in beside}
    os.environ.update(beside)
    try:
        yield
    finally:
        os.environ.update(before)
