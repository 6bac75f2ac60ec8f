"""Whether a compiled step drops out as the model does, although it draws other numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

import torch
from torch import nn

from autocompile.core.plan import Plan
from autocompile.core.tolerance import Tolerance
from autocompile.runtime.compiler_options import with_options
from autocompile.workload.samples import Sample, clone
from autocompile.workload.training.several import put
from autocompile.workload.training.step import TrainingStep

DRAWS = 32
# In standard errors.
_FURTHEST = 5.0


def drawing_as_eager(plan: Plan) -> Plan:
    """The same plan, compiled so that it draws the numbers that eager draws, so that what it does can be compared.

    It is the compiler's own lowering of random functions that is left out; what is measured is compiled with it, and is
    judged by `lowering_fault`.
    """
    return with_options(plan, {"fallback_random": True})


@dataclass(frozen=True)
class _Draws:
    """A figure of so many steps."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return stdev(self.values)


def lowering_fault(step: TrainingStep, baseline: TrainingStep, sample: Sample, seed: int, tolerance: Tolerance) -> str:
    """What is wrong with the random numbers that a step draws, compared with the baseline's, or "".

    Both do 32 steps, of which each begins with the same parameters and goes on in the random numbers. Compared are the
    loss and the norm of the gradient: they differ from step to step, their means agree within 5 standard errors, and
    their standard deviations within a factor of 2.5, which is 5 standard errors, too, for normal distributions; what
    the precision makes of them is allowed besides. So dropout at a rate of 0.5 in the place of 0.1 is seen; that a rate
    is off by a tenth is not.
    """
    ours, theirs = _drawn(step, sample, seed), _drawn(baseline, sample, seed)
    for figure, own, other in zip(("loss", "norm of the gradient"), ours, theirs, strict=True):
        fault = _fault(own, other, tolerance.rmse * abs(other.mean))
        if fault:
            return f"the {figure} {fault}"
    return ""


def _fault(own: _Draws, theirs: _Draws, allowed: float) -> str:
    if len(set(theirs.values)) == 1:
        return ""
    if len(set(own.values)) == 1:
        return "is the same at every step, where random numbers should make it differ"
    if any(one == other for one, other in pairwise(own.values)):
        return "is the same in two steps one after the other, which drew the same random numbers"
    error = math.hypot(own.deviation, theirs.deviation) / math.sqrt(DRAWS)
    if not abs(own.mean - theirs.mean) <= _FURTHEST * error + allowed:
        return f"is {own.mean:.4g} on average, and the baseline's {theirs.mean:.4g}, so it drops out at another rate"
    apart = abs(math.log(own.deviation / theirs.deviation))
    if apart > _FURTHEST / math.sqrt(DRAWS - 1) and abs(own.deviation - theirs.deviation) > allowed:
        ratio = own.deviation / theirs.deviation
        return f"scatters {ratio:.2g} times as much as the baseline's, so it drops out at another rate"
    return ""


def _drawn(step: TrainingStep, sample: Sample, seed: int) -> tuple[_Draws, _Draws]:
    """The losses, and the norms of the gradients."""
    losses, norms = [], []
    with step.preserved():
        torch.manual_seed(seed)
        parameters = step.parameters
        begins = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        for _ in range(DRAWS):
            losses.append(float(step.work(clone(sample))))
            gradients = [parameter.grad for parameter in parameters.values() if parameter.grad is not None]
            norms.append(float(nn.utils.get_total_norm(gradients) if step.norm is None else step.norm))
            put(parameters, begins)
    return _Draws(tuple(losses)), _Draws(tuple(norms))
