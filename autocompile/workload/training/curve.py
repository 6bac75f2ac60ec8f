"""The course of a training: many steps over the batches in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import torch

from autocompile.workload.samples import Sample, clone
from autocompile.workload.training.shaking import shake
from autocompile.workload.training.step import TrainingStep


@dataclass(frozen=True)
class Curve:
    """The loss of each step (or closure call), and the norm of all parameters together after it."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.losses)


def curve_of(
    step: TrainingStep,
    samples: Sequence[Sample],
    seed: int,
    *,
    steps: int,
    limit_s: float = math.inf,
    shaken: int | None = None,
) -> Curve:
    """Do this many steps from the current state, each with the next sample, and restore all state afterwards.

    An optimizer that calls its closure itself does its own steps, until the closure was called `steps` times. `seed` is
    for the random numbers that the steps draw. The curve ends early after `limit_s` seconds. With `shaken`, all
    parameters that are trained are moved before each step by up to one rounding error per element, by random numbers
    from this seed. This is then the same training with other rounding errors.
    """
    losses: list[float] = []
    norms: list[float] = []
    moves = None if shaken is None else torch.Generator().manual_seed(shaken)
    ends = time.perf_counter() + limit_s

    def is_over() -> bool:
        return len(losses) >= steps or time.perf_counter() >= ends

    def learn(sample: Sample) -> torch.Tensor:
        if moves is not None:
            shake(step.parameters.values(), moves)
        loss = step.work(clone(sample))
        losses.append(float(loss))
        norms.append(_norm(step))
        return loss

    step.settle(samples[0])
    with step.preserved():
        torch.manual_seed(seed)
        if step.by_closure:
            _search(step, samples, learn, is_over)
        while not step.by_closure and not is_over():
            learn(samples[len(losses) % len(samples)])
    return Curve(tuple(losses), tuple(norms))


class _Over(Exception):
    """Ends an optimizer's step before it is complete."""


def _search(
    step: TrainingStep,
    samples: Sequence[Sample],
    learn: Callable[[Sample], torch.Tensor],
    is_over: Callable[[], bool],
) -> None:
    """Let the optimizer do its own steps, each with the next sample, and call its closure as often as it does."""

    def on(sample: Sample) -> torch.Tensor:
        if is_over():
            raise _Over
        with torch.enable_grad():
            return learn(sample)

    with suppress(_Over):
        for sample in cycle(samples):
            step.optimizer.step(partial(on, sample))  # type: ignore[arg-type]


@torch.no_grad()
def _norm(step: TrainingStep) -> float:
    """Return the norm in double precision, so that a change by a millionth of it is visible."""
    own = [torch.linalg.vector_norm(p, dtype=torch.float64) for p in step.parameters.values() if p.is_floating_point()]
    return float(torch.linalg.vector_norm(torch.stack(own))) if own else 0.0
