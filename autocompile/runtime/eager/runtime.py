"""A plan, carried out by torch's operators one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autocompile.core.plan import Plan
from autocompile.runtime.base import Runtime
from autocompile.runtime.built import Built, transformed
from autocompile.workload.samples import Sample


class EagerRuntime(Runtime):
    """Nothing is compiled."""

    def build(self, model: Any, plan: Plan, device_type: str, _samples: Sequence[Sample], /, *, isolate: bool) -> Built:
        target = transformed(model, plan, isolate=isolate)
        return Built(target, plan, device_type, target)


RUNTIME = EagerRuntime()
