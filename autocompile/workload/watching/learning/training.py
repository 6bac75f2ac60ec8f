"""Convert a recorded training to a Training that any process can do, and prove that it does the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autocompile.core.errors import UsageError
from autocompile.core.plan import Plan
from autocompile.workload.samples import Sample, describe
from autocompile.workload.training.recorded import TAPE, RecordedLoss
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training
from autocompile.workload.watching.learning.lesson import Lesson, Start, gradients_of
from autocompile.workload.watching.learning.tape import Round

# The maximum deviation of a repeated step's update from the script's, relative to the update's norm: in full precision,
# and if the script computes in half precision.
_NEAR, _NEAR_IN_HALF = 1e-3, 0.1
# If all batches have the same form, this many steps' batches are kept.
_ENOUGH = 4


class Unteachable(Exception):
    """A script's training cannot be tuned. The message tells why."""


@dataclass(frozen=True)
class Taught:
    """A module as it was before one of its steps, the batches from that step on, and how it is trained on them."""

    module: nn.Module
    batches: list[dict[str, Any]]
    training: Training


def taught(lesson: Lesson, *, autocast: str) -> Taught:
    """Return the training of a lesson. `autocast` is the dtype that the script computes in, or "".

    The first recorded step is repeated from the script's state before it, and must lead to the script's state after it.
    Raises Unteachable if it does not, or if too little was recorded.
    """
    if lesson.problem:
        raise Unteachable(lesson.problem)
    if lesson.start is None:
        raise Unteachable(
            f"only one {lesson.words.one} of it was seen, which shows what is trained; the next one would be recorded"
        )
    module, steps = lesson.start.module, _alike(lesson.recorded[lesson.first :])
    tapes = {one.tape.key: one.tape for step in steps for one in step}
    numbers = {key: number for number, key in enumerate(tapes)}
    loss = RecordedLoss(list(tapes.values()), lesson.constants.tensors, len(steps[0]))
    batches = [{TAPE: numbers[one.tape.key], **one.given} for step in steps for one in step]
    device = next(module.parameters()).device.type
    try:
        training = Training(
            optimizer=lesson.start.recipe.build(dict(module.named_parameters())),
            loss=loss,
            accumulate=len(steps[0]),
            clip_norm=lesson.clip_norms.most_common(1)[0][0],
        )
        # The check runs without the script's scaler, so small gradients would be lost in float16.
        checked = "" if autocast == "float16" else autocast
        step = TrainingStep(module, training, plan=Plan(autocast=checked), device_type=device)
        _check(step, steps[0], batches, lesson.start, _NEAR_IN_HALF if autocast else _NEAR)
    except Unteachable:
        raise
    except UsageError as fault:
        raise Unteachable(fault.fault) from fault
    except Exception as fault:  # the user's code may raise anything when it is called again
        said = f"{type(fault).__name__}: {fault}".split("\n", maxsplit=1)[0]
        raise Unteachable(f"its step raised an exception when it was repeated: {said}") from fault
    return Taught(module, _thinned(batches, len(steps[0])), training)


def _alike(steps: Sequence[tuple[Round, ...]]) -> list[tuple[Round, ...]]:
    """Return the first step, and the steps that have the same structure."""
    first = [set(one.given) for one in steps[0]]
    return [step for step in steps if [set(one.given) for one in step] == first]


def _thinned(batches: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the batches of a few steps if all batches have the same form, or else all batches."""
    forms = {describe(Sample((batch,), {})) for batch in batches}
    return batches[: _ENOUGH * count] if len(forms) == 1 else batches


def _check(
    step: TrainingStep, rounds: Sequence[Round], batches: Sequence[dict[str, Any]], start: Start, near: float
) -> None:
    """Repeat the step, and compare its losses, its update and its buffers with the script's.

    If the optimizer calls its closure itself, the gradients are compared instead of the update.
    """
    before = {name: one.detach().clone() for name, one in step.parameters.items()}
    with step.preserved():
        step.clear()
        for one, batch in zip(rounds, batches, strict=False):
            with _random_as_it_was(step.module, one):
                loss = float(step.learn(batch, len(rounds)))
            if not abs(loss - one.value) <= near * max(abs(one.value), near):
                raise Unteachable(f"its loss on the same batch was {one.value:.6g}, but is {loss:.6g} when repeated")
        step.update()
        after = start.after
        if step.by_closure:
            _check_gradients(gradients_of(step.module), start.gradients, near)
        else:
            _check_update(step, before, after, near)
        for name, buffer in step.module.named_buffers():
            if name in after and _distance(buffer, after[name]) > near * max(_distance(after[name]), near):
                raise Unteachable(f"its step changes the buffer {name} differently when it is repeated")


@contextmanager
def _random_as_it_was(module: nn.Module, made: Round) -> Iterator[None]:
    """Start each call of the module with the random state that it had in the script."""
    states = iter(made.random)

    def restore(*_: Any) -> None:
        state = next(states, None)
        if state is not None:
            state.restore()

    with module.register_forward_pre_hook(restore, prepend=True):
        yield


def _check_update(
    step: TrainingStep, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], near: float
) -> None:
    moved = math.hypot(*(_distance(after[name], before[name]) for name in before))
    off = math.hypot(*(_distance(parameter, after[name]) for name, parameter in step.parameters.items()))
    if not moved:
        raise Unteachable("the step that was recorded changes no parameter; its learning rate may be 0 at the start")
    if not off <= near * moved:
        differs = f"its step changes the parameters differently when it is repeated (by {off / moved:.0%})"
        raise Unteachable(f"{differs}: the script does something with gradients or parameters that was not recorded")


def _check_gradients(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], near: float) -> None:
    size = math.hypot(*map(_distance, theirs.values()))
    if not size:
        raise Unteachable("the closure call that was recorded gives no gradient")
    off = math.inf
    if ours.keys() == theirs.keys():
        off = math.hypot(*(_distance(gradient, theirs[name]) for name, gradient in ours.items()))
    if not off <= near * size:
        differs = f"its closure gives different gradients when it is called again (by {off / size:.0%})"
        raise Unteachable(f"{differs}: the script does something with gradients that was not recorded")


def _distance(one: torch.Tensor, other: torch.Tensor | None = None) -> float:
    """Return the norm of the difference, or of one tensor alone, in double precision."""
    wide = one.detach().double()
    return float(torch.linalg.vector_norm(wide if other is None else wide - other.double()))
