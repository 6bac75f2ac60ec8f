"""Plans, carried out by their runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from msgspec.structs import replace

from autocompile.core.plan import EAGER, Plan
from autocompile.runtime.base import Runtime
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import kind, kind_of
from autocompile.runtime.deferred import BuiltWhenCalled
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample


@cache
def runtime(name: str) -> Runtime:
    """The runtime of this name. Raises InvalidValue if there is none, ImportError if what it needs is missing."""
    implementation: Runtime = import_module(kind(name).implementation).RUNTIME
    return implementation


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
