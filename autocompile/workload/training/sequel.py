"""Compute what an optimizer should make of given gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from autocompile.workload.observation import gradient_of
from autocompile.workload.training.course import STEPS, Course
from autocompile.workload.training.recipe import Recipe, widened

# The devices whose fused kernels hold an optimizer's settings in float32 (torch 2.11).
ROUNDING_SETTINGS = frozenset({"cuda"})


@dataclass(frozen=True)
class OptimizerSequel:
    """The optimizer's part of several steps, repeated in double precision from the gradients that were observed.

    Whether the gradients are correct is checked separately. If both were judged together, the tolerance for an
    optimizer would have to be very large: Adam turns the error of a gradient near zero into one as large as a whole
    update. From the same gradient, all implementations compute the same up to a few rounding errors. Therefore even
    missing weight decay is detected, although it is less than a thousandth of an update.
    """

    recipe: Recipe
    course: Course

    def of(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """Return the updates, and the optimizer's state after them, by their names in an observation.

        Nothing follows from calls of a closure, because the optimizer combines several of them in its own way.
        """
        if self.recipe.by_closure:
            return {}
        parameters = {name: nn.Parameter(widened(start)) for name, start in self.course.starts.items()}
        optimizer = self.recipe.in_float64().build(parameters)
        updates = {update_of(name): torch.zeros_like(parameter.data) for name, parameter in parameters.items()}
        for number in range(STEPS):
            begins = {name: widened(self.course.place(name, number)) for name in parameters}
            for name, parameter in parameters.items():
                parameter.data.copy_(begins[name])
                parameter.grad = _gradient(leaves, name, number)
            optimizer.step()
            for name, parameter in parameters.items():
                updates[update_of(name)] += parameter.data - begins[name]
        return {**updates, **dict(optimizer_leaves(optimizer, parameters))}

    @property
    def rounding(self) -> float:
        """The largest relative error of 1 minus a setting, such as one of Adam's betas, where kernels round settings.

        With a beta of 0.999 in float32, 1 minus it is off by 1.3e-5, and so is the state that it is multiplied with.
        At most 1%, and 0 on devices whose kernels hold settings in double precision.
        """
        if not any(start.device.type in ROUNDING_SETTINGS for start in self.course.starts.values()):
            return 0.0
        settings = pytree.tree_leaves([group.settings for group in self.recipe.groups])
        shares = [one for one in settings if isinstance(one, float) and 0 < one < 1]
        return min(0.01, max((abs(float(np.float32(one)) - one) / (1 - one) for one in shares), default=0.0))

    def spacing(self, name: str) -> torch.Tensor | None:
        """Return, for an update, the distance between neighbouring values of the parameter, for each element."""
        starts = {update_of(own): own for own in self.course.starts}
        if name not in starts:
            return None
        own = starts[name]
        size: torch.Tensor = widened(self.course.starts[own]).abs()
        return size * torch.finfo(self.course.dtypes[own]).eps


def update_of(name: str) -> str:
    """Return the name in an observation of a parameter's change over all steps."""
    return f"update of {name}"


def had_gradient(name: str) -> str:
    """Return the name in an observation of the steps in which a parameter got a gradient."""
    return f"steps with a gradient of {name}"


def optimizer_leaves(optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, Any]]:
    """Yield copies of the tensors in an optimizer's state, each with its name.

    Step counters are copied to the CPU, because their device depends on the implementation.
    """
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                own = value.detach().clone()
                yield f"optimizer's {key} of {name}", own.cpu() if own.dim() == 0 else own


def _gradient(leaves: Mapping[str, Any], name: str, number: int) -> torch.Tensor | None:
    """Return the gradient observed in this step, in double precision, or None if there was none."""
    steps = leaves.get(had_gradient(name), ())
    return widened(leaves[gradient_of(name)][steps.index(number)]) if number in steps else None
