"""What an optimizer should make of gradients, whatever these are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from autocompile.workload.observation import gradient_of
from autocompile.workload.training.course import STEPS, Course
from autocompile.workload.training.recipe import Recipe, widened


@dataclass(frozen=True)
class OptimizerSequel:
    """The optimizer's part of several steps, done again in double precision from the gradients that were observed.

    Whether the gradients are right is another question. Judged together with them, an optimizer would have to be
    forgiven nearly everything: Adam turns the error of a gradient near zero into one as large as a whole update. From
    one and the same gradient it computes the same to within some roundings in any implementation, so that weight decay
    which is lost is seen, although it is less than a thousandth of an update.
    """

    recipe: Recipe
    course: Course

    def of(self, leaves: Mapping[str, Any]) -> dict[str, Any]:
        """The updates, and the optimizer's state after them, by the names that an observation has for them.

        Of calls of a closure nothing follows: its optimizer makes of several what it makes.
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

    def spacing(self, name: str) -> torch.Tensor | None:
        """For an update, how far apart two values of the parameter are that can be told apart, an element each."""
        starts = {update_of(own): own for own in self.course.starts}
        if name not in starts:
            return None
        own = starts[name]
        size: torch.Tensor = widened(self.course.starts[own]).abs()
        return size * torch.finfo(self.course.dtypes[own]).eps


def update_of(name: str) -> str:
    """Under which name an observation has by how much a parameter was changed, all steps together."""
    return f"update of {name}"


def had_gradient(name: str) -> str:
    """Under which name an observation has in which of the steps a parameter got a gradient."""
    return f"steps with a gradient of {name}"


def optimizer_leaves(optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, Any]]:
    """The tensors in an optimizer's state, copied, each with what it is called.

    Counters are given on the CPU, as they lie elsewhere in some implementations.
    """
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                own = value.detach().clone()
                yield f"optimizer's {key} of {name}", own.cpu() if own.dim() == 0 else own


def _gradient(leaves: Mapping[str, Any], name: str, number: int) -> torch.Tensor | None:
    """What was observed in this step, in double precision; None if there was none."""
    steps = leaves.get(had_gradient(name), ())
    return widened(leaves[gradient_of(name)][steps.index(number)]) if number in steps else None
