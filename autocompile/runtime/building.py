"""Carry out plans by their runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module

from msgspec.structs import replace

from autocompile.core.plan import EAGER, Plan
from autocompile.runtime.ahead import AheadRuntime
from autocompile.runtime.base import CachingRuntime, Runtime
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import kind, kind_of, kinds
from autocompile.runtime.deferred import BuiltWhenCalled
from autocompile.runtime.training import as_planned
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step
from autocompile.workload.training.compiled_step import COMPILED, CompiledStep, put_compiled
from autocompile.workload.training.step import TrainingStep


class LibraryMissing(ImportError):
    """A library that a runtime needs is not installed or cannot be imported; the message names it."""


# Runtimes that could be imported but still cannot be used in this process, each with the reason.
_CLOSED: dict[str, str] = {}


def runtime(name: str) -> Runtime:
    """Return the runtime of this name. Raises InvalidValue if there is none, LibraryMissing if a library is missing."""
    if name in _CLOSED:
        raise LibraryMissing(_CLOSED[name])
    implementation = kind(name).implementation
    try:
        return _imported(implementation)
    except Exception as fault:  # an installed but incompatible library may raise anything
        raise LibraryMissing(_words(name, fault)) from fault


def ahead(name: str) -> AheadRuntime:
    """Return the runtime of this name, whose Kind packs as `load`. Raises as `runtime` does, and TypeError if not."""
    own = runtime(name)
    if not isinstance(own, AheadRuntime):
        raise TypeError(f"runtime {name} compiles no programs ahead: its RUNTIME is no AheadRuntime")
    return own


def caching(name: str) -> CachingRuntime:
    """Return the runtime of this name, whose Kind packs as `cache`. Raises as `runtime` does, and TypeError if not."""
    own = runtime(name)
    if not isinstance(own, CachingRuntime):
        raise TypeError(f"runtime {name} carries no cache: its RUNTIME is no CachingRuntime")
    return own


def usable() -> dict[str, Runtime]:
    """Return all runtimes that can be used in this process, by name."""
    by_name = {}
    for known in kinds():
        with suppress(LibraryMissing):
            by_name[known.name] = runtime(known.name)
    return by_name


def close(name: str, fault: Exception) -> str:
    """Exclude a runtime that lacks something it needs from this process, and return the reason as text."""
    _CLOSED[name] = str(fault) if isinstance(fault, LibraryMissing) else _words(name, fault)
    return _CLOSED[name]


def build(step: Call, plan: Plan, samples: Sequence[Sample] = (), *, isolate: bool = False) -> Built:
    """Build a step that does the same work as the baseline's `step`, as `plan` says: see `Runtime.build`.

    Without samples, a runtime that compiles during the build does so at the first call, because production does not
    know the calls in advance.
    """
    own = runtime(plan.runtime)
    if samples or kind_of(plan).compiles != "build":
        return own.build(step, plan, samples, isolate=isolate)
    eager = build(step, replace(plan, runtime=EAGER, settings={}), isolate=isolate)
    call = BuiltWhenCalled(lambda sample: own.build(step, plan, (sample,), isolate=isolate), eager)
    return Built(call, replace(plan, autocast=""), step.device_type, step.model)


def built(step: Step, plan: Plan, samples: Sequence[Sample] = (), *, isolate: bool = False) -> Step:
    """Build any kind of step as `plan` says: a call with `build`, a training step with `as_trained`."""
    if isinstance(step, TrainingStep):
        return as_trained(step, plan, isolate=isolate)
    if isinstance(step, Call):
        return build(step, plan, samples, isolate=isolate)
    raise TypeError(f"no runtime carries out a {type(step).__name__}")


def as_trained(step: TrainingStep, plan: Plan, *, isolate: bool = True) -> TrainingStep:
    """Build a training step that does the same work as the baseline's `step`, as `plan` says: see `as_planned`."""
    own = runtime(plan.runtime)
    planned = as_planned(step, plan, own.to_train, isolate=isolate)
    if plan.optimizer == COMPILED:
        put_compiled(planned.optimizer, CompiledStep(planned.optimizer, own.compiled_update, keeps_state=True))
    return planned


@cache
def _imported(implementation: str) -> Runtime:
    imported: Runtime = import_module(implementation).RUNTIME
    return imported


def _words(name: str, fault: Exception) -> str:
    """Return which library is missing, by name if the exception has one."""
    library = isinstance(fault, ImportError) and fault.name
    said = str(fault) if isinstance(fault, ImportError) else f"{type(fault).__name__}: {fault}"
    remedy = kind(name).install or "install it"
    return f"runtime {name}: {library or 'its library'} cannot be imported ({said}); {remedy}"
