"""A step of training, as its plan says: what every runtime that trains does alike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.workload.training.step import TrainingStep

# What compiles a module, or its parts in place: what the loss is given.
Compile = Callable[[nn.Module, Plan], Any]


def as_planned(step: TrainingStep, plan: Plan, compiled: Compile, *, isolate: bool) -> TrainingStep:
    """The same training as `step`, the baseline's, as `plan` says; the baseline and its parameters stay as they are.

    With `isolate`, or where a plan changes the module, it trains copies of the parameters, which begin where the
    baseline's are. Raises InvalidWorkload where the optimizer has no such implementation.
    """
    module = copy.deepcopy(step.module) if isolate or plan != Plan() else step.module
    if plan.memory_format:
        module.to(memory_format=getattr(torch, plan.memory_format))  # type: ignore[call-overload]
    own = TrainingStep(
        module,
        step.training,
        model=compiled(module, plan),
        recipe=step.recipe.implemented(plan.optimizer),
        autocast=plan.autocast,
        device_type=step.device_type,
    )
    own.threads = plan.threads
    return own
