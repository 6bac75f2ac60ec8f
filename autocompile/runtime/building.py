"""Plans, carried out by their runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from autocompile.core.plan import Plan
from autocompile.runtime.base import Runtime
from autocompile.runtime.built import Built
from autocompile.runtime.catalogue import kind
from autocompile.workload.samples import Sample


@cache
def runtime(name: str) -> Runtime:
    """The runtime of this name. Raises InvalidValue if there is none, ImportError if what it needs is missing."""
    found: Runtime = import_module(kind(name).implementation).RUNTIME
    return found


def build(model: Any, plan: Plan, device_type: str, samples: Sequence[Sample] = (), *, isolate: bool = False) -> Built:
    """Carry out `plan` on `model` by its runtime: see `Runtime.build`."""
    return runtime(plan.runtime).build(model, plan, device_type, samples, isolate=isolate)
