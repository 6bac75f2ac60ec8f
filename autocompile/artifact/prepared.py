"""What `autocompile.prepare` gives: a step of training on the user's own model and optimizer."""

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
from autocompile.artifact.step_forms import Form, how_it_differs, key_of
from autocompile.core.caution import warn
from autocompile.core.errors import UsageError
from autocompile.core.plan import Plan
from autocompile.core.serde import Record
from autocompile.core.serving import AS_IT_IS, Serving, Start
from autocompile.core.workload import TrainingEntry
from autocompile.runtime.base import Trainable
from autocompile.runtime.building import runtime
from autocompile.runtime.catalogue import kind_of
from autocompile.workload.state import State
from autocompile.workload.tf32 import products_as
from autocompile.workload.training.cutting import parts_of, uncut
from autocompile.workload.training.recipe import calls_its_closure
from autocompile.workload.training.scaling import scaler_for
from autocompile.workload.training.step import check_loss
from autocompile.workload.training.training import Loss

Made = TypeVar("Made")

# Forms of batches that are remembered: a loop may bring new ones without end.
_MOST_FORMS = 1024


class StepFallback(Record, frozen=True):
    """Why steps were not done as recommended, and how many of them."""

    reason: str
    steps: int


class StepStatus(Record, frozen=True):
    """How a prepared step trains.

    `runtime` runs the model, `start` is what it does to start: `compile` at the first step, the same from a carried
    `cache`, or `none`. `label` is the recommended configuration, or `eager` where nothing of it is applied. `steps` by
    the runtime that did them, those done by calling the prepared step; `fallbacks` with reasons. `cache` is what proves
    the hits of a carried cache, else None. `notes` say what else differs from how it was tuned.
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
    """How steps are done: the plan as it fits here, the training that was tuned, and the loss.

    `forms` are those of the batches that it was tuned with. `fallback`: why it is not done as recommended, or "".
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
    """A step of training as a recommendation has it, on the user's own model and optimizer.

    Called with a batch, or with several where the recommendation accumulates, it does a whole step: gradients are
    cleared, the loss is computed in the plan's precision, its gradients are added and clipped, the optimizer does its
    step. An optimizer that calls for the loss itself does so, on these batches, as often as it likes. Its parts serve
    loops of one's own: `parts(batch)`, `loss(batch)` (or `model` and `autocast()`),
    `backward(loss)` and `optimizer`; clearing and clipping gradients is that loop's work then, and so is an error of
    the compiler's.

    A plan in float16 scales the loss: `backward` does, and then `scaler`, a torch.amp.GradScaler, does the optimizer's
    step in such a loop, `scaler.step(step.optimizer)` and `scaler.update()`, after `scaler.unscale_(step.optimizer)`
    where gradients are clipped. In any other plan it leaves all as it is, so that a loop with it serves them all.

    `optimizer` is the one that was given, on the plan's implementation. `told`: what comes to be known of it later.
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
        """Do a step; its loss, detached: the mean over the batches, where there are several.

        Where the optimizer calls for the loss several times, it is the first of these losses.
        Raises UsageError for no batch, or more than the recommendation accumulates over; InvalidWorkload if the loss is
        no scalar tensor, or needs no gradient; and what the model or the loss raises.
        """
        self._check(batches)
        losses: list[torch.Tensor] = []

        def learn() -> torch.Tensor:
            with torch.enable_grad():
                losses.append(self._learned(batches))
            self.scaler.unscale_(self.optimizer)
            if self._how.training.clip_norm is not None:
                nn.utils.clip_grad_norm_(self._module.parameters(), self._how.training.clip_norm)
            return losses[-1]

        if calls_its_closure(type(self.optimizer)):  # whose loss is never scaled
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
        """Whether a call of a form that was not seen yet may compile."""
        return self._compiles

    @property
    def runtime(self) -> str:
        """What runs the model, as of now; the same as in the status, of which more has to be found out."""
        return self._serving.runtime

    @property
    def model(self) -> Any:
        """The model, compiled as the plan says, with its own parameters: for losses of a loop of one's own.

        What a plan compiles of the loss, only `loss` has.
        """
        return self._trainable.model

    def loss(self, batch: Any) -> torch.Tensor:
        """The loss of a batch, with its graph, as the plan computes it: for `backward`.

        Raises InvalidWorkload if it is no scalar tensor, or needs no gradient; and what model and loss raise.
        """
        return self._loss(self._trainable, batch)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision in which the plan computes the loss, as a context: autocast, or matrix products in TF32."""
        if not self._how.plan.autocast:
            return products_as(self._how.plan.float32)
        return torch.autocast(self._how.device_type, dtype=getattr(torch, self._how.plan.autocast))

    def backward(self, loss: torch.Tensor, count: int | None = None) -> None:
        """Add the gradients of a batch's loss, divided by `count`, the batches of the step; see `scaler` for float16.

        By default that is as many as the recommendation accumulates over.
        """
        self._add(loss, self._how.training.accumulate if count is None else count)

    def parts(self, batch: Any) -> list[Any]:
        """The micro-batches that the plan cuts a batch into, on its memory; the batch alone where it cannot be cut.

        A loop of one's own gives the loss of each to `backward`, with the parts of all batches of a step as `count`.
        """
        count = self._how.plan.micro_batches
        problem = uncut(batch, count) if count > 1 else ""
        if problem and not any(note.startswith(_WHOLE) for note in self._notes):
            self._notes.append(f"{_WHOLE}: {problem}; it takes more memory")
            warn(self._notes[-1])
        return parts_of(batch, count)

    def state_dict(self) -> dict[str, Any]:
        """The model's, by the names that its parts have without this."""
        return self._module.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Give the model this state; as its own method of that name."""
        return self._module.load_state_dict(state, strict=strict)

    @property
    def status(self) -> StepStatus:
        """How it trains, as of now."""
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

    def _check(self, batches: Sequence[Any]) -> None:
        most = self._how.training.accumulate
        if not 1 <= len(batches) <= most:
            takes = "one batch" if most == 1 else f"1 to {most} batches"
            remedy = "give a batch of several parts as one tuple" if most == 1 else "give each batch as one argument"
            raise UsageError(f"a step takes {takes}, and {len(batches)} were given", where="batches", remedy=remedy)

    def _learned(self, batches: Sequence[Any]) -> torch.Tensor:
        """Clear the gradients, and make new ones; the loss."""
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
        """Add the gradients of a loss; its share of the step's."""
        share = loss / count if count > 1 else loss
        with products_as(self._how.plan.float32):
            self.scaler.scale(share).backward()
        return share.detach()

    def tried(self, learn: Callable[[], Made], *, otherwise: Callable[[], Made]) -> Made:
        """What `learn` gives, which may compile; what `otherwise` does without the compiler where that raises.

        From then on the model trains as it is. If it raises as well, the fault is its own, and nothing is changed.
        """
        before = State(self._module).snapshot()
        try:
            return learn()
        except Exception as raised:  # the compiler's, or the model's own, which eager raises again
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
            self._notes.append(f"{_OTHER_FORM}: {differs}; torch compiles anew for other sizes, within its limit")
            warn(self._notes[-1])


_WHOLE = "a batch was not cut into micro-batches"
_OTHER_FORM = "a batch is not as those that were tuned with"
