"""Observe what several training steps do, by the model's own names for its parts.

An observation contains the loss of each step, and the gradient's norm if it is clipped. It contains each parameter's
gradients as the optimizer got them, one row for each step that had one. It also contains the change of each parameter
and buffer over all steps, and the optimizer's state after the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from autocompile.core.step_profile import Phase
from autocompile.workload.observation import NORM, Observation, gradient_of, input_leaves
from autocompile.workload.samples import Sample, clone
from autocompile.workload.training.course import STEPS, Course
from autocompile.workload.training.recipe import widened
from autocompile.workload.training.sequel import had_gradient, optimizer_leaves, update_of


class Learning(Protocol):
    """The object that does the steps: see `step.TrainingStep`."""

    module: nn.Module
    optimizer: Optimizer
    autocast: str
    norm: torch.Tensor | None

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters by name."""

    def work(self, sample: Sample) -> torch.Tensor:
        """Do a step and return the loss."""

    def telling(self, hears: Callable[[Phase], None]) -> AbstractContextManager[None]:
        """Call `hears` at the beginning of each phase of a step."""


def observe_several(step: Learning, sample: Sample, course: Course) -> Observation:
    """Do the steps on copies of the sample. The random numbers continue, so each step has different dropout."""
    module = step.module
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    losses, norms, seen = [], [], _Seen()
    for number in range(STEPS):
        parameters = step.parameters
        begins = {name: course.place(name, number) for name in parameters if name in course.starts}
        put(parameters, begins)
        own = clone(sample)
        with step.telling(partial(seen.hear, parameters, number)):
            loss = step.work(own)
        losses.append(loss.float() if step.autocast else loss)
        if step.norm is not None:
            norms.append(step.norm.detach().clone())
        seen.take(parameters, begins, number)
    leaves: dict[str, Any] = {"loss": torch.stack(losses), **dict(input_leaves(own)), **seen.leaves()}
    if norms:
        leaves[NORM] = torch.stack(norms)
    leaves.update(_changes(module, buffers))
    leaves.update(optimizer_leaves(step.optimizer, step.parameters))
    return Observation(leaves["loss"], leaves, "a loss for every step")


class _Seen:
    """Gradients and updates, step by step."""

    def __init__(self) -> None:
        self._gradients: dict[str, list[torch.Tensor]] = {}
        self._steps: dict[str, list[int]] = {}
        self._updates: dict[str, torch.Tensor] = {}
        self._heard: set[int] = set()

    def hear(self, parameters: Mapping[str, nn.Parameter], number: int, phase: Phase) -> None:
        """Record the gradients before the optimizer uses them.

        Some optimizers write into them, such as SGD with Nesterov's momentum in its implementation by `foreach`.
        """
        if phase == "optimizer":
            self._take_gradients(parameters, number)

    def take(self, parameters: Mapping[str, nn.Parameter], begins: dict[str, torch.Tensor], number: int) -> None:
        """Record the results of a step, and its gradients if it had no step of the optimizer."""
        if number not in self._heard:
            self._take_gradients(parameters, number)
        for name, begin in begins.items():
            update = widened(parameters[name]) - widened(begin)
            self._updates[name] = self._updates[name] + update if name in self._updates else update

    def _take_gradients(self, parameters: Mapping[str, nn.Parameter], number: int) -> None:
        self._heard.add(number)
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                gradient = parameter.grad.detach()
                dense = gradient.clone() if gradient.layout == torch.strided else gradient.to_dense()
                self._gradients.setdefault(name, []).append(dense)
                self._steps.setdefault(name, []).append(number)

    def leaves(self) -> dict[str, Any]:
        """Return everything by name."""
        gradients = {gradient_of(name): torch.stack(steps) for name, steps in self._gradients.items()}
        steps = {had_gradient(name): tuple(numbers) for name, numbers in self._steps.items()}
        return {**gradients, **steps, **{update_of(name): update for name, update in self._updates.items()}}


def put(parameters: Mapping[str, nn.Parameter], places: Mapping[str, torch.Tensor]) -> None:
    """Give these parameters these values, in place."""
    with torch.no_grad():
        for name, place in places.items():
            parameters[name].copy_(place)


def _changes(module: nn.Module, before: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the change of each buffer. Of buffers without floating-point numbers, return the current values."""
    leaves: dict[str, Any] = {}
    for name, buffer in module.named_buffers():
        if name in before and buffer.is_floating_point() and buffer.shape == before[name].shape:
            leaves[f"change of buffer {name}"] = buffer.detach() - before[name]
        else:
            leaves[f"buffer {name} afterwards"] = buffer.detach().clone()
    return leaves
