"""Plans, carried out by their runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from autocompile.core.plan import Plan
from autocompile.runtime.base import Runtime
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import kind, kinds
from autocompile.workload.samples import Sample


class LibraryMissing(ImportError):
    """What a runtime needs is not installed here, or cannot be imported; says what."""


# Why runtimes that could be imported cannot be used in this process all the same.
_CLOSED: dict[str, str] = {}


def runtime(name: str) -> Runtime:
    """The runtime of this name. Raises InvalidValue if there is none, LibraryMissing if what it needs is missing."""
    if name in _CLOSED:
        raise LibraryMissing(_CLOSED[name])
    implementation = kind(name).implementation
    try:
        return _imported(implementation)
    except Exception as fault:  # a library that is there and does not fit may raise anything
        raise LibraryMissing(_words(name, fault)) from fault


def usable() -> dict[str, Runtime]:
    """Every runtime that can be used in this process, by its name."""
    by_name = {}
    for one in kinds():
        with suppress(LibraryMissing):
            by_name[one.name] = runtime(one.name)
    return by_name


def close(name: str, fault: Exception) -> str:
    """Have this process do without a runtime, which turned out to lack what it needs; why, in words."""
    _CLOSED[name] = str(fault) if isinstance(fault, LibraryMissing) else _words(name, fault)
    return _CLOSED[name]


def build(model: Any, plan: Plan, device_type: str, samples: Sequence[Sample] = (), *, isolate: bool = False) -> Built:
    """Carry out `plan` on `model` by its runtime: see `Runtime.build`."""
    return runtime(plan.runtime).build(model, plan, device_type, samples, isolate=isolate)


@cache
def _imported(implementation: str) -> Runtime:
    imported: Runtime = import_module(implementation).RUNTIME
    return imported


def _words(name: str, fault: Exception) -> str:
    """What is missing, by its name where the fault tells it."""
    library = isinstance(fault, ImportError) and fault.name
    said = str(fault) if isinstance(fault, ImportError) else f"{type(fault).__name__}: {fault}"
    return f"runtime {name}: {library or 'what it needs'} cannot be imported ({said}); install it"
