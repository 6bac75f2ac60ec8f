"""Carry out a plan with torch's operators, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from autocompile.core.plan import Plan
from autocompile.runtime.base import Runtime, Trainable
from autocompile.runtime.built import Built, transformed
from autocompile.workload.call import Call
from autocompile.workload.samples import Sample
from autocompile.workload.training.training import Loss


class EagerRuntime(Runtime):
    """Nothing is compiled."""

    def build(self, step: Call, plan: Plan, _samples: Sequence[Sample], /, *, isolate: bool) -> Built:
        target = transformed(step.model, plan, isolate=isolate)
        return Built(target, plan, step.device_type, target)

    def to_train(self, module: nn.Module, loss: Loss, _plan: Plan, /) -> Trainable:
        return Trainable(module, loss)


RUNTIME = EagerRuntime()
