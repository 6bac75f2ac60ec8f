"""Plans, carried out by their runtimes."""

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


def ahead(name: str) -> AheadRuntime:
    """The runtime of this name, whose Kind packs as `load`. Raises as `runtime` does, and TypeError if it cannot."""
    own = runtime(name)
    if not isinstance(own, AheadRuntime):
        raise TypeError(f"runtime {name} compiles no programs ahead: its RUNTIME is no AheadRuntime")
    return own


def caching(name: str) -> CachingRuntime:
    """The runtime of this name, whose Kind packs as `cache`. Raises as `runtime` does, and TypeError if it cannot."""
    own = runtime(name)
    if not isinstance(own, CachingRuntime):
        raise TypeError(f"runtime {name} carries no cache: its RUNTIME is no CachingRuntime")
    return own


def usable() -> dict[str, Runtime]:
    """Every runtime that can be used in this process, by its name."""
    by_name = {}
    for known in kinds():
        with suppress(LibraryMissing):
            by_name[known.name] = runtime(known.name)
    return by_name


def close(name: str, fault: Exception) -> str:
    """Have this process do without a runtime, which turned out to lack what it needs; why, in words."""
    _CLOSED[name] = str(fault) if isinstance(fault, LibraryMissing) else _words(name, fault)
    return _CLOSED[name]


def build(step: Call, plan: Plan, samples: Sequence[Sample] = (), *, isolate: bool = False) -> Built:
    """The same work as the baseline's `step`, as `plan` says, by its runtime: see `Runtime.build`.

    Without samples, what is compiled while it is built is built when it is called: production knows no calls ahead.
    """
    own = runtime(plan.runtime)
    if samples or kind_of(plan).compiles != "build":
        return own.build(step, plan, samples, isolate=isolate)
    eager = build(step, replace(plan, runtime=EAGER, settings={}), isolate=isolate)
    call = BuiltWhenCalled(lambda sample: own.build(step, plan, (sample,), isolate=isolate), eager)
    return Built(call, replace(plan, autocast=""), step.device_type, step.model)


def built(step: Step, plan: Plan, samples: Sequence[Sample] = (), *, isolate: bool = False) -> Step:
    """A unit of work of any kind as `plan` says, by its runtime: a call as `build` does, a step of training trained."""
    if isinstance(step, TrainingStep):
        return as_trained(step, plan, isolate=isolate)
    if isinstance(step, Call):
        return build(step, plan, samples, isolate=isolate)
    raise TypeError(f"no runtime carries out a {type(step).__name__}")


def as_trained(step: TrainingStep, plan: Plan, *, isolate: bool = True) -> TrainingStep:
    """The same training as the baseline's `step`, as `plan` says, by its runtime: see `as_planned`."""
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
    """What is missing, by its name where the fault tells it."""
    library = isinstance(fault, ImportError) and fault.name
    said = str(fault) if isinstance(fault, ImportError) else f"{type(fault).__name__}: {fault}"
    remedy = kind(name).install or "install it"
    return f"runtime {name}: {library or 'what it needs'} cannot be imported ({said}); {remedy}"
