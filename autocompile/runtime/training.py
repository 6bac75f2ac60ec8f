"""A step of training, as its plan says: what every runtime that trains does alike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.runtime.base import Trainable
from autocompile.runtime.recomputation import recompute
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Loss

# What compiles a module, its parts in place, or its loss with it.
Compile = Callable[[nn.Module, Loss, Plan], Trainable]


def as_planned(step: TrainingStep, plan: Plan, compiled: Compile, *, isolate: bool) -> TrainingStep:
    """The same training as `step`, the baseline's, as `plan` says; the baseline and its parameters stay as they are.

    With `isolate`, or where a plan changes the module, it trains copies of the parameters, which begin where the
    baseline's are. Raises InvalidWorkload where the optimizer has no such implementation.
    """
    module = copy.deepcopy(step.module) if isolate or plan != Plan() else step.module
    if plan.memory_format:
        module.to(memory_format=getattr(torch, plan.memory_format))  # type: ignore[call-overload]
    recompute(module, plan.recomputed)
    made = compiled(module, step.training.loss, plan)
    own = TrainingStep(
        module,
        replace(step.training, loss=made.loss),
        model=made.model,
        recipe=step.recipe.implemented(plan.optimizer),
        autocast=plan.autocast,
        float32=plan.float32,
        micro_batches=plan.micro_batches,
        device_type=step.device_type,
    )
    own.threads = plan.threads
    return own
