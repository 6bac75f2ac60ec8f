"""Check that a compiled step draws random numbers from the same distributions as the model, although different ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from msgspec.structs import replace

from autocompile.core.plan import Plan
from autocompile.core.tolerance import Tolerance
from autocompile.runtime.catalogue import kind_of
from autocompile.runtime.compiler_options import with_options
from autocompile.workload.samples import Sample
from autocompile.workload.step import Step

# The number of runs; more if these take less than a second, as with a small model.
_TIMES, _MORE, _SOON_S = 32, 256, 1.0
# In standard errors of a normal distribution.
_FURTHEST = 5.0
_SHUFFLES = 400
# The allowance for rounding, relative to the scale of a figure. It can be wide: exact results are compared elsewhere.
_ROUNDING = 1e-3
# An event with a smaller probability than this is not taken for chance.
_RARE = 1e-6


def drawing_as_eager(plan: Plan) -> Plan:
    """Return the same plan, changed so that it draws eager's random numbers and its results can be compared.

    The changed plan leaves out the compiler's own lowering of random functions, and the order in which parts of a batch
    draw theirs. The measured candidate has both, and is checked by `lowering_fault`.
    """
    whole = replace(plan, micro_batches=1)
    return with_options(whole, {"fallback_random": True}) if kind_of(plan).compiles else whole


def lowering_fault(step: Step, baseline: Step, sample: Sample, seed: int, tolerance: Tolerance) -> str:
    """Return what is wrong with the random numbers that a step draws, compared with the baseline's, or "".

    Both sides run 32 times, or 256 times if that takes little time. Each run starts from the same state but continues
    with the next random numbers; `Step.figures` gives the compared figures. A figure must differ from run to run if the
    baseline's does. Its mean, variance and share of zeros must agree with the baseline's, element by element: within 5
    standard errors, as estimated by a permutation test that exchanges the runs of the two sides, plus an allowance for
    the precision. Many elements together show more than one: with 32 runs, dropout at 0.5 instead of 0.2 is detected in
    64 outputs, but not in 4.
    """
    began = time.perf_counter()
    theirs, times = baseline.drawn(sample, seed, _TIMES), _TIMES
    if time.perf_counter() - began < _SOON_S:
        theirs, times = baseline.drawn(sample, seed, _MORE), _MORE
    ours = step.drawn(sample, seed, times)
    for name, other in theirs.items():
        own = ours.get(name)
        if own is None or own.shape != other.shape:
            return f"{name} is missing or has another shape than the baseline's, when random numbers are drawn"
        fault = _fault(own, other, tolerance)
        if fault:
            return f"{name} {fault}"
    return ""


def _fault(own: torch.Tensor, theirs: torch.Tensor, tolerance: Tolerance) -> str:
    judged = torch.isfinite(theirs).all(0)
    if not bool(torch.isfinite(own[:, judged]).all()):
        return "is not always finite, but the baseline's is"
    own, theirs = own[:, judged], theirs[:, judged]
    if not theirs.numel():
        return ""
    faults = (aspect.fault(own, theirs, tolerance) for aspect in _ASPECTS)
    return _repeated(own, theirs) or next(filter(None, faults), "")


def _repeated(own: torch.Tensor, theirs: torch.Tensor) -> str:
    """Return a fault if the values repeat more often than random numbers allow, or ""."""
    distinct, count = (torch.unique(rows, dim=0, return_counts=True) for rows in (own, theirs))
    usual = float(count[1].max()) / len(theirs)
    if len(distinct[0]) == 1 and usual ** len(own) < _RARE:
        return "is the same every time, where random numbers should make it differ"
    if len(count[0]) > len(theirs) / 2 >= len(distinct[0]):
        return f"had {len(distinct[0])} values in {len(own)} runs, as if it drew the same random numbers again"
    return ""


@dataclass(frozen=True)
class _Aspect:
    """A feature of a single draw, whose mean over the draws is compared, and how far the precision may shift it.

    `of` returns the features of all draws of both sides, around the given centre. `allowed` returns the allowed shift,
    from the baseline's draws and the allowed error of the precision.
    """

    words: str
    of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    allowed: Callable[[torch.Tensor, float], torch.Tensor]

    def fault(self, own: torch.Tensor, theirs: torch.Tensor, tolerance: Tolerance) -> str:
        """Return what is wrong with this feature, or ""."""
        scale = float(theirs.square().mean().sqrt())
        centre = torch.cat([own, theirs]).mean(0)
        features = self.of(torch.cat([own, theirs]), centre)
        apart, chance = _distance(features, len(own))
        allowed = float(self.allowed(theirs, max(tolerance.rmse, _ROUNDING) * scale).norm())
        if apart <= chance + allowed:
            return ""
        ours, others = features[: len(own)].mean(0).norm(), features[len(own) :].mean(0).norm()
        times = f"{float(ours / others):.2g} times the baseline's" if others else "more than the baseline's"
        return f"{self.words} ({times}), as if it drew from another distribution"


def _distance(features: torch.Tensor, count: int) -> tuple[float, float]:
    """Return the distance between the means of the first `count` rows and of the others, and its limit by chance.

    The distribution by chance comes from shuffling which rows are the first. The squared distance is then approximated
    by a sum of squares of normal variables, whose number follows from its mean and variance (Satterthwaite). The tail
    of that sum is approximated by the cube of a normal variable (Wilson and Hilferty). This accounts for elements that
    vary together. It is the two-sample test of Gretton et al. (2012), "A Kernel Two-Sample Test", with the features'
    inner product as the kernel.
    """
    products = features @ features.T
    signs = torch.full((len(features),), -1.0 / (len(features) - count), dtype=torch.float64)
    signs[:count] = 1.0 / count
    generator = torch.Generator().manual_seed(0)
    orders = torch.stack([signs[torch.randperm(len(signs), generator=generator)] for _ in range(_SHUFFLES)])
    squares = ((orders @ products) * orders).sum(1).clamp(min=0)
    mean, variance = float(squares.mean()), float(squares.var())
    apart = float((signs @ products @ signs).clamp(min=0)) ** 0.5
    if mean <= 0 or variance <= 0:
        return apart, 0.0
    spread = variance / (9 * mean**2)  # 2 / 9k, where k = 2 mean^2 / variance is the number of squares
    return apart, (mean * (1 - spread + _FURTHEST * math.sqrt(spread)) ** 3) ** 0.5


def _by_precision_in_variance(theirs: torch.Tensor, off: float) -> torch.Tensor:
    return 2 * off * theirs.std(0) + off**2


_ASPECTS = (
    _Aspect(
        "has another mean",
        lambda rows, _centre: rows,
        lambda theirs, off: torch.full_like(theirs[0], off),
    ),
    _Aspect(
        "has another variance",
        lambda rows, centre: (rows - centre).square(),
        _by_precision_in_variance,
    ),
    _Aspect(
        "is zero at another rate",
        lambda rows, _centre: (rows == 0).double(),
        lambda theirs, _off: torch.zeros_like(theirs[0]),
    ),
)
