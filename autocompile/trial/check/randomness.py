"""Whether what is compiled draws random numbers as the model does, although it draws other ones."""

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

# So many times; more where these are done soon, as many calls of a small model are.
_TIMES, _MORE, _SOON_S = 32, 256, 1.0
# In standard errors of a normal distribution.
_FURTHEST = 5.0
_SHUFFLES = 400
# What is exact is compared exactly besides; so rounding may do here, of a figure's scale, what it does in sums.
_ROUNDING = 1e-3
# What happens so rarely by chance is no chance.
_RARE = 1e-6


def drawing_as_eager(plan: Plan) -> Plan:
    """The same plan, compiled so that it draws the numbers that eager draws, so that what it does can be compared.

    It is the compiler's own lowering of random functions that is left out, and the order in which parts of a batch draw
    theirs; what is measured has both, and is judged by `lowering_fault`.
    """
    whole = replace(plan, micro_batches=1)
    return with_options(whole, {"fallback_random": True}) if kind_of(plan).compiles else whole


def lowering_fault(step: Step, baseline: Step, sample: Sample, seed: int, tolerance: Tolerance) -> str:
    """What is wrong with the random numbers that a step draws, compared with the baseline's, or "".

    Both do the same 32 times, or 256 times where that takes little time, always from the same state, and go on in the
    random numbers; see `Step.figures` for what of it is looked at. It must differ from time to time where the
    baseline's does. Element by element, its mean, its variance and its share of zeros must agree with the baseline's:
    within 5 standard errors, as they are where it does not matter which of the two has done what (a permutation test),
    and what the precision makes of them besides. Many elements together say more than one: from 32 times, dropout at
    0.5 in the place of 0.2 is seen in 64 outputs, and not in 4.
    """
    began = time.perf_counter()
    theirs, times = baseline.drawn(sample, seed, _TIMES), _TIMES
    if time.perf_counter() - began < _SOON_S:
        theirs, times = baseline.drawn(sample, seed, _MORE), _MORE
    ours = step.drawn(sample, seed, times)
    for name, other in theirs.items():
        own = ours.get(name)
        if own is None or own.shape != other.shape:
            return f"{name} is not what the baseline's is, when random numbers are drawn"
        fault = _fault(own, other, tolerance)
        if fault:
            return f"{name} {fault}"
    return ""


def _fault(own: torch.Tensor, theirs: torch.Tensor, tolerance: Tolerance) -> str:
    judged = torch.isfinite(theirs).all(0)
    if not bool(torch.isfinite(own[:, judged]).all()):
        return "is not always finite, and the baseline's is"
    own, theirs = own[:, judged], theirs[:, judged]
    if not theirs.numel():
        return ""
    faults = (aspect.fault(own, theirs, tolerance) for aspect in _ASPECTS)
    return _repeated(own, theirs) or next(filter(None, faults), "")


def _repeated(own: torch.Tensor, theirs: torch.Tensor) -> str:
    """Whether it is the same more often than random numbers allow."""
    distinct, count = (torch.unique(rows, dim=0, return_counts=True) for rows in (own, theirs))
    usual = float(count[1].max()) / len(theirs)
    if len(distinct[0]) == 1 and usual ** len(own) < _RARE:
        return "is the same every time, where random numbers should make it differ"
    if len(count[0]) > len(theirs) / 2 >= len(distinct[0]):
        return f"had {len(distinct[0])} values in {len(own)} times, as it draws the same random numbers again"
    return ""


@dataclass(frozen=True)
class _Aspect:
    """A feature of a single draw, of which the mean over the draws is compared; and how far precision may shift it.

    `of`: the features of all draws, of both sides, around the given centre. `allowed`: from the baseline's draws and
    what the precision may be off, relative to their scale.
    """

    words: str
    of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    allowed: Callable[[torch.Tensor, float], torch.Tensor]

    def fault(self, own: torch.Tensor, theirs: torch.Tensor, tolerance: Tolerance) -> str:
        """What is wrong with it, or ""."""
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
    """How far apart the means of the first `count` rows and of the others are, and how far they may be by chance.

    By chance is told by shuffling which rows are the first; the square of that distance is then distributed like a sum
    of so many squares of normal variables as its mean and its variance tell (Satterthwaite), whose tail is that of a
    normal variable's cube (Wilson and Hilferty). Elements that vary together are thereby taken as they are. It is the
    two-sample test of Gretton et al. (2012), "A Kernel Two-Sample Test", with the features' inner product.
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
        "scatters otherwise",
        lambda rows, centre: (rows - centre).square(),
        _by_precision_in_variance,
    ),
    _Aspect(
        "is zero at another rate",
        lambda rows, _centre: (rows == 0).double(),
        lambda theirs, _off: torch.zeros_like(theirs[0]),
    ),
)
