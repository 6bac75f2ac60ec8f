"""What was seen of a module's training, as a Training that every process can do; and the proof that it is the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autocompile.core.errors import UsageError
from autocompile.workload.samples import Sample, describe
from autocompile.workload.training.recorded import TAPE, RecordedLoss
from autocompile.workload.training.step import TrainingStep
from autocompile.workload.training.training import Training
from autocompile.workload.watching.learning.lessons import Lesson
from autocompile.workload.watching.learning.tape import Round

# How far the update of a step that is done again may be from the script's, relative to its own norm: in full precision,
# and where the script computes in half.
_NEAR, _NEAR_IN_HALF = 1e-3, 0.1
# Of batches that are all of one form no more are kept.
_ENOUGH = 4


class Unteachable(Exception):
    """Why a script's training cannot be tuned."""


@dataclass(frozen=True)
class Taught:
    """A module as it was before one of its steps, the batches from there on, and how it is trained on them."""

    module: nn.Module
    batches: list[dict[str, Any]]
    training: Training


def taught(lesson: Lesson, *, autocast: str) -> Taught:
    """The training of a lesson, `autocast` being the dtype that the script computes in, or "".

    Its first step is done again from where the script was before it, and has to lead to where the script was after it.
    Raises Unteachable where it does not, or where there is too little to go by.
    """
    if lesson.problem:
        raise Unteachable(lesson.problem)
    if lesson.start is None:
        raise Unteachable("one step of it was seen, which only says what is trained; a second one would be recorded")
    module, steps = lesson.start.module, _alike(lesson.recorded[lesson.first :])
    tapes = {one.tape.key: one.tape for step in steps for one in step}
    numbers = {key: number for number, key in enumerate(tapes)}
    loss = RecordedLoss(list(tapes.values()), lesson.constants.tensors, len(steps[0]))
    batches = [{TAPE: numbers[one.tape.key], **one.given} for step in steps for one in step]
    try:
        training = Training(
            optimizer=lesson.start.recipe.build(dict(module.named_parameters())),
            loss=loss,
            accumulate=len(steps[0]),
            clip_norm=lesson.clip_norms.most_common(1)[0][0],
        )
        _check(TrainingStep(module, training, autocast=autocast), steps[0], batches, lesson.start.after)
    except UsageError as fault:
        raise Unteachable(fault.fault) from fault
    return Taught(module, _thinned(batches, len(steps[0])), training)


def _alike(steps: Sequence[tuple[Round, ...]]) -> list[tuple[Round, ...]]:
    """The first step, and those that are put together as it is."""
    first = [set(one.given) for one in steps[0]]
    return [step for step in steps if [set(one.given) for one in step] == first]


def _thinned(batches: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """A few steps' batches, where all are of one form."""
    forms = {describe(Sample((batch,), {})) for batch in batches}
    return batches[: _ENOUGH * count] if len(forms) == 1 else batches


def _check(
    step: TrainingStep, rounds: Sequence[Round], batches: Sequence[dict[str, Any]], after: Mapping[str, torch.Tensor]
) -> None:
    """Do the step again, and compare its losses and its update with the script's."""
    near = _NEAR_IN_HALF if step.autocast else _NEAR
    before = {name: one.detach().clone() for name, one in step.parameters.items()}
    with step.preserved():
        step.clear()
        for one, batch in zip(rounds, batches, strict=False):
            one.random.restore()
            loss = float(step.learn(batch, len(rounds)))
            if not abs(loss - one.value) <= near * max(abs(one.value), near):
                raise Unteachable(f"its loss, computed again on the same batch, is {loss:.6g}, and was {one.value:.6g}")
        step.update()
        moved, off = 0.0, 0.0
        for name, parameter in step.parameters.items():
            own = (after[name] - before[name]).double()
            moved += float(own.square().sum())
            off += float((parameter.detach() - after[name]).double().square().sum())
    if not moved:
        raise Unteachable("the step that was recorded changes no parameter; its learning rate may be 0 at the start")
    if not math.sqrt(off / moved) <= near:
        differs = f"its step, done again, changes the parameters otherwise (by {math.sqrt(off / moved):.0%})"
        raise Unteachable(f"{differs}: the script does something with gradients or parameters that is not seen")
