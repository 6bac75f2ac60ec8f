"""A training step: the gradients of a loss, and the optimizer's update."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
from torch import nn

from autocompile.core.errors import InvalidWorkload
from autocompile.core.plan import Plan
from autocompile.workload.attention import attention_as
from autocompile.workload.copying import copied
from autocompile.workload.observation import NORM, Observation
from autocompile.workload.samples import Sample, clone
from autocompile.workload.state import State
from autocompile.workload.step import Step
from autocompile.workload.tf32 import products_as
from autocompile.workload.training.course import Course
from autocompile.workload.training.cutting import parts_of
from autocompile.workload.training.recipe import Recipe, recipe_for, recipe_of
from autocompile.workload.training.scaling import scaler_for
from autocompile.workload.training.sequel import OptimizerSequel
from autocompile.workload.training.several import observe_several
from autocompile.workload.training.shaking import shake
from autocompile.workload.training.training import Training
from autocompile.workload.training.widening import Widening

_WHERE = "training.loss"
_AS_GIVEN = Plan()
# A scale is halved whenever gradients overflow. From 65536, this many halvings lead below any useful scale.
_SETTLING = 24


class TrainingStep(Step):
    """One training step on a sample, whose arguments are the batches that it accumulates over.

    A step clears the gradients, computes the loss of each batch, adds its gradients divided by the number of batches,
    clips the gradients of all parameters, and calls the optimizer. The model stays in the mode that the user has set.
    If the optimizer calls its closure itself (`by_closure`), the work is one closure call: all of this except the
    optimizer's step.

    It trains the `module` itself, with a separate optimizer; the user's is only read. `model` is passed to the loss, if
    it is not the module itself: the same module, compiled. Of the `plan`, a step itself applies only the dtype in
    which the loss is computed (`autocast`), the precision of float32 products in the loss and its gradients, the way to
    compute attention, and the number of `micro_batches` into which each batch is split; their gradients are added,
    divided by that number. `recipe` is a variant of the user's optimizer. `norm` is the norm of the gradient before it
    was last clipped. A loss in float16 is scaled by a `scaler`, whose scale is not part of the step's state: it keeps
    the value at which it has settled. Raises InvalidWorkload if no recipe of the optimizer can be made.
    """

    def __init__(
        self,
        module: nn.Module,
        training: Training,
        *,
        model: Any = None,
        recipe: Recipe | None = None,
        plan: Plan = _AS_GIVEN,
        device_type: str = "cpu",
    ) -> None:
        self.module: nn.Module = module
        self.model = module if model is None else model
        self.training, self.device_type = training, device_type
        self.autocast, self.float32, self.attention = plan.autocast, plan.float32, plan.attention
        self.micro_batches = plan.micro_batches
        self.scaler = scaler_for(self.autocast, device_type)
        recipe = recipe or recipe_for(training.optimizer, self.parameters)
        self.norm: torch.Tensor | None = None
        self.widens = False
        self.by_closure = recipe.by_closure
        self._make = recipe.make
        self._dtypes = {name: parameter.dtype for name, parameter in self.parameters.items()}
        self.optimizer = recipe.build(self.parameters)

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """All parameters of the module, each once, by the first of its names."""
        return dict(self.module.named_parameters())

    @property
    def recipe(self) -> Recipe:
        """The recipe of the optimizer as it is now."""
        return recipe_of(self.optimizer, self.parameters, self._make)

    @property
    def state(self) -> State:
        return State(self.module, learns=True, optimizers=(self.optimizer,))

    def work(self, sample: Sample) -> torch.Tensor:
        """Do a step and return the detached loss, averaged over the batches."""
        self.begin("other")
        self.clear()
        losses = [self.learn(batch, len(sample.args)) for batch in sample.args]
        self.update()
        self.begin("other")
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def clear(self) -> None:
        """Clear the gradients."""
        self.module.zero_grad()

    def learn(self, batch: Any, count: int) -> torch.Tensor:
        """Add the gradients of one of `count` batches. Return its detached loss, divided by `count`."""
        parts = parts_of(batch, self.micro_batches)
        first, *others = (self._learn_part(part, count * len(parts)) for part in parts)
        return sum(others, start=first)

    def _learn_part(self, part: Any, count: int) -> torch.Tensor:
        with products_as(self.float32), attention_as(self.attention):
            self.begin("forward")
            loss = self.loss(part)
            if count > 1:
                loss = loss / count
            self.begin("backward")
            self.scaler.scale(loss).backward()
        return loss.detach().clone()  # a CUDA graph writes the next loss to the same memory

    def loss(self, batch: Any) -> torch.Tensor:
        """Return the loss of a batch. Raises InvalidWorkload if it is not a scalar tensor that needs a gradient."""
        with self._precision():
            loss = self.training.loss(self.model, batch)
        check_loss(loss)
        return loss

    def _precision(self) -> AbstractContextManager[Any]:
        if self.widens:
            return Widening()
        if self.autocast:
            return torch.autocast(self.device_type, dtype=getattr(torch, self.autocast))
        return nullcontext()

    def update(self) -> None:
        """Clip the gradients, and do the optimizer's step unless scaled gradients overflowed.

        For an optimizer that calls its closure itself, no optimizer step is done.
        """
        self.scaler.unscale_(self.optimizer)
        if self.training.clip_norm is not None:
            self.begin("clipping")
            self.norm = nn.utils.clip_grad_norm_(self.module.parameters(), self.training.clip_norm)
        if not self.by_closure:
            self.begin("optimizer")
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def check(self, sample: Sample) -> None:
        """Do the work once and restore everything. Raises InvalidWorkload if this step cannot be tuned.

        That is the case if the loss is not a scalar, needs no gradient, is not finite, or does not depend on the model.
        """
        with self.preserved():
            loss = self.work(sample)
            held = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
            reached = any(parameter.grad is not None for parameter in held)
        if not bool(torch.isfinite(loss)):
            raise InvalidWorkload(f"is {loss.item()}", where=_WHERE, remedy="give batches for which it is finite")
        if not reached:
            raise InvalidWorkload(
                "gives no gradient to any parameter that the optimizer holds",
                where=_WHERE,
                remedy="compute it from the output of the `model` that it is given",
            )

    def first_call(self, sample: Sample) -> Sample | None:
        """Return the arguments of the first call of the model for the first batch, or None if there is none."""
        calls: list[Sample] = []
        hook = self.module.register_forward_pre_hook(
            lambda _module, args, kwargs: calls.append(Sample(args, kwargs)), prepend=True, with_kwargs=True
        )
        with hook, self.preserved(), torch.no_grad(), self._precision():
            self.training.loss(self.module, clone(sample).args[0])
        return calls[0] if calls else None

    def observe(self, sample: Sample, seed: int, *, draws: int | None = None) -> Observation:
        """Do several steps and return what they did; see `several`. All state is restored afterwards.

        If a step was skipped because the scale of its loss made gradients overflow, all steps are repeated with the new
        scale. If the scale never settles, the last observation is returned.
        """
        for _ in range(_SETTLING):
            scale = self.scaler.get_scale()
            with self.preserved():
                torch.manual_seed(seed if draws is None else draws)
                seen = observe_several(self, sample, self._course(seed))
            if self.scaler.get_scale() >= scale:
                break
        return seen

    def observe_shaken(self, sample: Sample, seed: int) -> Observation:
        with self.preserved():
            shake(self.parameters.values(), torch.Generator().manual_seed(seed))
            return self.observe(sample, seed)

    def settle(self, sample: Sample) -> None:
        """Find a scale of the loss with which no gradient overflows, if the loss is scaled. Only the scale changes."""
        for _ in range(_SETTLING if self.scaler.is_enabled() else 0):
            scale = self.scaler.get_scale()
            with self.preserved():
                self.work(clone(sample))
            if self.scaler.get_scale() >= scale:
                return

    def figures(self, sample: Sample) -> dict[str, torch.Tensor]:
        """Return the loss, and the norm of the gradient."""
        loss = self.work(sample)
        gradients = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients) if self.norm is None else self.norm
        return {"the loss": loss.double().cpu().reshape(1), f"the {NORM}": norm.detach().double().cpu().reshape(1)}

    def sequel(self, seed: int) -> OptimizerSequel:
        return OptimizerSequel(self.recipe, self._course(seed))

    def twin(self) -> Self:
        """Return a copy with a separate model and optimizer.

        Call this only on a step that is not compiled, such as the baseline. The copy's gradients are cleared, as at the
        beginning of a step.
        """
        return self._with(*copied((self.model, self.module)), self.recipe)

    def in_float64(self) -> TrainingStep:
        """Return a copy with parameters, buffers and optimizer state in float64, without autocast and compiler.

        Its scaler is disabled.
        """
        module = copied(self.module).double()
        other = self._with(module, module, self.recipe.in_float64())
        other.autocast, other.float32, other.attention, other.widens = "", "", "", True
        other.scaler = scaler_for("", self.device_type)
        return other

    def _with(self, model: Any, module: nn.Module, recipe: Recipe) -> Self:
        other = copy.copy(self)
        other.model, other.module = model, module
        other.optimizer = recipe.build(other.parameters)
        other.scaler = scaler_for(other.autocast, other.device_type)
        return other

    def _course(self, seed: int) -> Course:
        starts = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        moved = frozenset(name for name, parameter in self.parameters.items() if parameter.requires_grad)
        dtypes = {name: self._dtypes.get(name, start.dtype) for name, start in starts.items()}
        return Course(starts, dtypes, moved, seed)


def check_loss(loss: Any) -> None:
    """Raise InvalidWorkload if a loss is not a scalar tensor, or needs no gradient."""
    if not isinstance(loss, torch.Tensor):
        raise InvalidWorkload(
            f"returned a {type(loss).__name__}, not a tensor", where=_WHERE, remedy="return the loss as a scalar tensor"
        )
    if loss.dim() > 0:
        raise InvalidWorkload(
            f"returned a tensor of shape {tuple(loss.shape)}, not a scalar",
            where=_WHERE,
            remedy="return its mean or its sum",
        )
    if not loss.requires_grad:
        raise InvalidWorkload(
            "returned a tensor that needs no gradient",
            where=_WHERE,
            remedy="compute it from the model's output, without detach() or no_grad()",
        )
