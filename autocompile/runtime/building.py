"""Plans, carried out by their runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from autocompile.core.plan import EAGER, Plan
from autocompile.runtime.base import Runtime
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import kind, kind_of
from autocompile.runtime.deferred import BuiltWhenCalled
from autocompile.workload.samples import Sample


@cache
def runtime(name: str) -> Runtime:
    """The runtime of this name. Raises InvalidValue if there is none, ImportError if what it needs is missing."""
    implementation: Runtime = import_module(kind(name).implementation).RUNTIME
    return implementation


def build(model: Any, plan: Plan, device_type: str, samples: Sequence[Sample] = (), *, isolate: bool = False) -> Built:
    """Carry out `plan` on `model` by its runtime: see `Runtime.build`.

    Without samples, what is compiled while it is built is built when it is called: production knows no calls ahead.
    """
    own = runtime(plan.runtime)
    if samples or kind_of(plan).compiles != "build":
        return own.build(model, plan, device_type, samples, isolate=isolate)
    eager = build(model, replace(plan, runtime=EAGER, settings={}), device_type, isolate=isolate)
    call = BuiltWhenCalled(lambda sample: own.build(model, plan, device_type, (sample,), isolate=isolate), eager)
    return Built(call, replace(plan, autocast=""), device_type, model)
