"""What processes that trials run in need of every runtime: its imports, made ahead and timed, and a cache of their own.

Importing this module imports all of it. A process that builds with a runtime pays for its imports once. Children are
forked with them paid, so `IMPORT_S` is added to what a candidate of that runtime needs to start. A runtime whose
library is missing is left out, and `MISSING` says why.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

importlib.import_module("torch")  # everyone pays for torch itself, so it is not in the figures
# Nor for what this package has for all runtimes.
for _shared in ("ahead", "outputs", "padding"):
    importlib.import_module(f"autocompile.runtime.{_shared}")

from autocompile.runtime.building import close, runtime, usable  # noqa: E402
from autocompile.runtime.catalogue import kinds  # noqa: E402


def _imported() -> tuple[dict[str, float], dict[str, str]]:
    took, missing = {}, {}
    for kind in kinds():
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():  # where they are errors, one about a deprecated name would close a runtime
                warnings.simplefilter("ignore")
                runtime(kind.name).prepare()
        except Exception as fault:  # another's library may raise anything; it must not end what others run in
            missing[kind.name] = close(kind.name, fault)
        else:
            took[kind.name] = time.perf_counter() - began
    return took, missing


# Seconds, by runtime; and why the others cannot be used.
IMPORT_S, MISSING = _imported()


def cache_variables(directory: str) -> dict[str, str]:
    """Environment variables that make every runtime keep its cache there, each in a directory of its own name."""
    named = (own.cache_variables(f"{directory}/{name}") for name, own in usable().items())
    return {variable: value for variables in named for variable, value in variables.items()}


# Where this process keeps its caches, once that is settled.
_KEPT_IN: list[str] = []
_ASIDE = "aside"


def keep_in(cache: str, headers: str) -> None:
    """Have this process keep its caches in one directory, and what belongs to the machine's compiler in another."""
    _KEPT_IN[:] = [cache]
    os.environ.update(cache_variables(cache))
    for own in usable().values():
        own.keep_headers_in(Path(headers))


@contextmanager
def compiling_aside() -> Iterator[None]:
    """What is compiled meanwhile is kept in a cache beside this process's own: nothing of it is carried with that."""
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
