"""Build a training step as its plan says. All runtimes that train share this code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.runtime.base import Trainable
from autocompile.runtime.recomputation import recompute
from autocompile.workload.copying import copied
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Loss

# Compiles a module, its parts in place, or the module together with its loss.
Compile = Callable[[nn.Module, Loss, Plan], Trainable]


def as_planned(step: TrainingStep, plan: Plan, compiled: Compile, *, isolate: bool) -> TrainingStep:
    """Build a training step that does the same work as the baseline's `step`, as `plan` says.

    The baseline and its parameters are not changed. With `isolate`, or if the plan differs from the default, the result
    trains copies of the parameters, which start with the baseline's values. Raises InvalidWorkload if the optimizer
    does not have the implementation that the plan names.
    """
    module = copied(step.module) if isolate or plan != Plan() else step.module
    if plan.memory_format:
        module.to(memory_format=getattr(torch, plan.memory_format))  # type: ignore[call-overload]
    recompute(module, plan.recomputed)
    made = compiled(module, step.training.loss, plan)
    own = TrainingStep(
        module,
        replace(step.training, loss=made.loss),
        model=made.model,
        recipe=step.recipe.implemented(plan.optimizer),
        plan=plan,
        device_type=step.device_type,
    )
    own.threads = plan.threads
    return own
