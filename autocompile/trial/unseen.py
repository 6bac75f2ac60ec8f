"""Sizes that no sample has: whether a candidate is right for them, and whether it compiles again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autocompile.core.job import Acceptance
from autocompile.trial.verify import verify
from autocompile.workload.axes import FreeAxis, free_axes, resized
from autocompile.workload.reference import Case, Reference, observe
from autocompile.workload.samples import Sample


@dataclass(frozen=True)
class Unseen:
    """How many such calls were tried, for how many it would compile again, and what was wrong, or ""."""

    tried: int = 0
    compiled_again: int = 0
    fault: str = ""


def probe_unseen(
    call: Callable[..., Any], baseline: Callable[..., Any], samples: Sequence[Sample], acceptance: Acceptance, seed: int
) -> Unseen:
    """One call for each axis along which the samples differ, with a size amid theirs that none of them has.

    To be asked while recompiling is forbidden (`torch.compiler.set_stance("fail_on_recompile")`).
    """
    tried = again = 0
    for axis in free_axes(samples, frozenset()):
        size = _between(axis)
        if not size:
            continue
        sample = resized(samples[0], axis.places, size)
        try:
            expected = observe(baseline, sample, seed)
        except Exception:  # noqa: S112  a size that the model itself does not take is nobody's to serve
            continue
        tried += 1
        cases = (Case(sample, expected, expected),)
        try:
            verified = verify(call, Reference(cases, "the baseline's own", seed), acceptance)
        except RuntimeError:  # what the stance raises, or what a program made for other sizes does
            again += 1
            continue
        if verified.fault:
            return Unseen(tried, again, f"for size {size}, which no sample has, {verified.fault}")
    return Unseen(tried, again)


def _between(axis: FreeAxis) -> int:
    """The middle of the widest gap between the sizes seen, or 0 if they have none."""
    seen = sorted(set(axis.seen))
    gaps = [(high - low, (high + low) // 2) for low, high in pairwise(seen) if high - low > 1]
    return max(gaps)[1] if gaps else 0
