"""The result of `autocompile.prepare`: a training step on the user's own model and optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from autocompile.artifact.in_place import InPlace
from autocompile.artifact.module import CacheUse, cache_use
from autocompile.artifact.step_forms import Form, check_count, how_it_differs, key_of
from autocompile.core.caution import warn
from autocompile.core.plan import Plan
from autocompile.core.serde import Record
from autocompile.core.serving import AS_IT_IS, Serving, Start
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.base import Trainable
from autocompile.runtime.building import runtime
from autocompile.runtime.catalogue import kind_of
from autocompile.workload.attention import attention_as
from autocompile.workload.process_setting import both
from autocompile.workload.state import State
from autocompile.workload.tf32 import products_as
from autocompile.workload.training.cutting import parts_of, uncut
from autocompile.workload.training.recipe import calls_its_closure
from autocompile.workload.training.scaling import scaler_for
from autocompile.workload.training.step import check_loss
from autocompile.workload.training.training import Loss

Made = TypeVar("Made")

# How many forms of batches are remembered. A loop may bring new ones without end.
_MOST_FORMS = 1024


class StepFallback(Record, frozen=True):
    """Why steps were not done as recommended, and how many."""

    reason: str
    steps: int


class StepStatus(Record, frozen=True):
    """How a prepared step trains.

    `runtime` runs the model. `start` is how it starts: `compile` at the first step, the same with a packed `cache`, or
    `none`. `label` is the recommended configuration, or `eager` if it is not applied. `steps` counts the calls of the
    prepared step, by runtime; `fallbacks` has the reasons for steps that were not as recommended. `cache` has the hits
    and misses of a packed compiler cache, else it is None. `notes` say what else differs from the tuned training.
    """

    runtime: str
    start: Start
    label: str
    steps: dict[str, int]
    fallbacks: tuple[StepFallback, ...]
    cache: CacheUse | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class How:
    """How steps are done: the plan as far as it fits here, the training that was tuned, and the loss.

    `forms`: the forms of the batches that were tuned. `fallback`: why steps are not done as recommended, or "".
    """

    label: str
    plan: Plan
    serving: Serving
    training: TrainingEntry
    loss: Loss
    device_type: str
    forms: Sequence[Form] = ()
    fallback: str = ""
    notes: tuple[str, ...] = ()


class PreparedStep:
    """A training step as recommended, on the user's own model and optimizer.

    A call with a batch (or several, if the recommendation accumulates gradients) does a whole step: it clears the
    gradients, computes the loss in the plan's precision, accumulates and clips gradients, and runs the optimizer. An
    optimizer that needs a closure calls it on these batches as often as it needs. A custom loop can use the parts of a
    step: `parts(batch)`, `loss(batch)` (or `model` and `autocast()`), `backward(loss)` and `optimizer`. Such a loop has
    to clear and clip gradients itself, and to handle errors of the compiler.

    A plan in float16 scales the loss. In a custom loop, `backward` scales it, and the optimizer must run with
    `scaler.step(step.optimizer)` and `scaler.update()`, where `scaler` is a torch.amp.GradScaler; before clipping
    gradients, call `scaler.unscale_(step.optimizer)`. With all other plans the scaler has no effect.

    `optimizer` is the given one, with the plan's implementation. `told`: notes that may arise later.
    """

    def __init__(self, module: nn.Module, optimizer: Optimizer, how: How, told: Sequence[str] = ()) -> None:
        self.optimizer = optimizer
        self._module, self._how = module, how
        self.scaler = scaler_for(how.plan.autocast, how.device_type)
        if self.scaler.is_enabled():
            optimizer.register_step_pre_hook(self.scaler.check)
        self._undone = InPlace(module)
        self._given = Trainable(module, how.loss)
        self._trainable = runtime(how.plan.runtime).to_train(module, how.loss, how.plan)
        self._serving, self._fallback = how.serving, how.fallback
        self._compiles = kind_of(how.plan).compiles is not None
        self._seen: set[Hashable] = set()
        self._steps: Counter[str] = Counter()
        self._fallbacks: Counter[str] = Counter()
        self._notes, self._told = list(how.notes), told

    def __call__(self, *batches: Any) -> torch.Tensor:
        """Do a step, and return its detached loss: the mean over the batches, if there are several.

        If the optimizer calls a closure several times, it is the first of the losses. Warns if the first step gets
        fewer batches than the recommendation accumulates. Raises UsageError without a batch, or for more batches than
        the recommendation accumulates; InvalidWorkload if the loss is not a scalar tensor, or does not require a
        gradient; and any exception of the model or the loss.
        """
        note = check_count(batches, self._how.training.accumulate, is_first=not self._steps)
        if note and note not in self._notes:
            self._notes.append(note)
            warn(note)
        losses: list[torch.Tensor] = []

        def learn() -> torch.Tensor:
            with torch.enable_grad():
                losses.append(self._learned(batches))
            self.scaler.unscale_(self.optimizer)
            if self._how.training.clip_norm is not None:
                nn.utils.clip_grad_norm_(self._module.parameters(), self._how.training.clip_norm)
            return losses[-1]

        if calls_its_closure(type(self.optimizer)):  # the loss of a closure is never scaled
            self.optimizer.step(learn)  # type: ignore[arg-type]
        else:
            with self.scaler.undone_if_it_raises(self.optimizer):
                learn()
                self.scaler.step(self.optimizer)
                self.scaler.update()
        self._steps[self._serving.runtime] += 1
        if self._fallback:
            self._fallbacks[self._fallback] += 1
        return losses[0]

    @property
    def compiles(self) -> bool:
        """Whether a batch of a new form may trigger compilation."""
        return self._compiles

    @property
    def runtime(self) -> str:
        """The runtime that currently runs the model. Faster than `status.runtime`."""
        return self._serving.runtime

    @property
    def model(self) -> Any:
        """The model, compiled according to the plan, with its own parameters, for custom loops.

        If the plan also compiles the loss function, only `loss` uses that.
        """
        return self._trainable.model

    def loss(self, batch: Any) -> torch.Tensor:
        """Return the loss of a batch, computed according to the plan, with its graph, for `backward`.

        Raises InvalidWorkload if it is not a scalar tensor, or does not require a gradient.
        """
        return self._loss(self._trainable, batch)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context with the plan's precision (autocast, or products in TF32) and way to compute attention."""
        plan, own = self._how.plan, products_as(self._how.plan.float32)
        if plan.autocast:
            own = torch.autocast(self._how.device_type, dtype=getattr(torch, plan.autocast))
        return both(attention_as(plan.attention), own) if plan.attention else own

    def backward(self, loss: torch.Tensor, count: int | None = None) -> None:
        """Add the gradients of a batch's loss, divided by `count`, the number of batches in the step.

        The default is the number of batches that the recommendation accumulates. In float16, the loss is scaled.
        """
        self._add(loss, self._how.training.accumulate if count is None else count)

    def parts(self, batch: Any) -> list[Any]:
        """Return the plan's micro-batches, which are views of a batch; only the batch itself if it cannot be cut.

        A custom loop calls `backward` with the loss of each; `count` is the number of parts of all batches in a step.
        """
        count = self._how.plan.micro_batches
        problem = uncut(batch, count) if count > 1 else ""
        if problem and not any(note.startswith(_WHOLE) for note in self._notes):
            self._notes.append(f"{_WHOLE}: {problem}; it needs more memory")
            warn(self._notes[-1])
        return parts_of(batch, count)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the model, with the model's own names."""
        return self._module.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Load a state into the model, like the model's own method."""
        return self._module.load_state_dict(state, strict=strict)

    @property
    def status(self) -> StepStatus:
        """How the step currently trains."""
        return StepStatus(
            runtime=self._serving.runtime,
            start=self._serving.start,
            label=self._how.label,
            steps=dict(self._steps),
            fallbacks=tuple(StepFallback(reason, steps) for reason, steps in self._fallbacks.items()),
            cache=cache_use(self._serving.runtime) if self._serving.start == "cache" else None,
            notes=(*self._notes, *self._told),
        )

    def __repr__(self) -> str:
        return f"<PreparedStep {self._how.label}, done by {self._serving}>"

    def _learned(self, batches: Sequence[Any]) -> torch.Tensor:
        """Clear the gradients, compute new ones, and return the loss."""
        if not self._compiles:
            return self._learn(self._trainable, batches)
        key = key_of(batches)
        if key in self._seen or len(self._seen) >= _MOST_FORMS:
            return self._learn(self._trainable, batches)
        loss = self.tried(
            lambda: self._learn(self._trainable, batches), otherwise=lambda: self._learn(self._given, batches)
        )
        self._seen.add(key)
        if self._compiles:
            self._tell_of_another_form(batches)
        return loss

    def _learn(self, trainable: Trainable, batches: Sequence[Any]) -> torch.Tensor:
        self._module.zero_grad()
        first, *others = (self._learn_from(trainable, batch, len(batches)) for batch in batches)
        return sum(others, start=first.clone())

    def _learn_from(self, trainable: Trainable, batch: Any, count: int) -> torch.Tensor:
        parts = self.parts(batch)
        first, *others = (self._add(self._loss(trainable, part), count * len(parts)) for part in parts)
        return sum(others, start=first)

    def _loss(self, trainable: Trainable, batch: Any) -> torch.Tensor:
        with self.autocast():
            loss = trainable.loss(trainable.model, batch)
        check_loss(loss)
        return loss

    def _add(self, loss: torch.Tensor, count: int) -> torch.Tensor:
        """Add the gradients of a loss, and return its share of the step's loss."""
        share = loss / count if count > 1 else loss
        with products_as(self._how.plan.float32), attention_as(self._how.plan.attention):
            self.scaler.scale(share).backward()
        return share.detach()

    def tried(self, learn: Callable[[], Made], *, otherwise: Callable[[], Made]) -> Made:
        """Return the result of `learn`, which may compile. If it raises, return that of `otherwise`, without compiler.

        From then on the model trains without the compiler. If `otherwise` raises as well, the error is the model's own.
        """
        before = State(self._module).snapshot()
        try:
            return learn()
        except Exception as raised:  # the compiler's error, or the model's own, which eager raises again
            fault = raised
        before.restore()
        self._undone.swap()
        try:
            made = otherwise()
        except BaseException:
            self._undone.swap()
            raise
        self._trainable, self._compiles, self._serving = self._given, False, AS_IT_IS
        said = " ".join(str(fault).split("\n")[:2]).strip()
        self._fallback = f"compiling failed: {type(fault).__name__}: {said}"
        warn(f"{self._fallback}; from now on the model trains without the compiler; tune it again")
        return made

    def _tell_of_another_form(self, batches: Sequence[Any]) -> None:
        differs = how_it_differs(batches, self._how.forms)
        if differs and not any(note.startswith(_OTHER_FORM) for note in self._notes):
            self._notes.append(f"{_OTHER_FORM}: {differs}; torch compiles again for new sizes, up to its limit")
            warn(self._notes[-1])


_WHOLE = "a batch was not cut into micro-batches"
_OTHER_FORM = "a batch differs from those that were tuned with"
