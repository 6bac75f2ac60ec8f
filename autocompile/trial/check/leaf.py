"""One leaf of an observation, with its expected value and the baseline's value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from autocompile.core.units import format_beyond
from autocompile.trial.check.limits import WHOLE_GRADIENT, Rule, of_calls, of_learning, of_sequel, of_worst_step
from autocompile.trial.check.reference import Case, Reference
from autocompile.workload.observation import NORM, Observation, gradient_of


@dataclass(frozen=True)
class Leaf:
    """A candidate's `actual` value under a `name` with its `expected` value, the same for the baseline, and the `rule`.

    The two expected values differ only if they follow from the other values that were observed on each side.
    """

    name: str
    actual: Any
    expected: Any
    baseline: Any
    baseline_expected: Any
    rule: Rule

    def at(self, judged: torch.Tensor) -> Leaf:
        """Return the leaf with these elements only."""
        return self._each(lambda tensor: tensor[judged])

    @property
    def flat(self) -> Leaf:
        """The leaf with all elements on one axis."""
        return self._each(lambda tensor: tensor.reshape(-1))

    def _each(self, taken: Callable[[torch.Tensor], torch.Tensor]) -> Leaf:
        return replace(
            self,
            actual=taken(self.actual),
            expected=taken(self.expected),
            baseline=taken(self.baseline),
            baseline_expected=taken(self.baseline_expected),
        )

    def row(self, number: int) -> Leaf:
        """Return the leaf with one row only, keeping the axis."""
        return self._each(lambda tensor: tensor[number : number + 1])

    @property
    def got(self) -> torch.Tensor:
        """The candidate's value in double precision."""
        return self._wide(self.actual)

    @property
    def truth(self) -> torch.Tensor:
        """The expected value of the candidate in double precision."""
        return self._wide(self.expected)

    @property
    def own_error(self) -> torch.Tensor:
        """The baseline's deviation from its expected value."""
        return self._wide(self.baseline) - self._wide(self.baseline_expected)

    def _wide(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.complex128 if self.baseline.is_complex() else torch.float64)


class WholeGradient:
    """The gradients of all parameters together, which have one limit in any precision.

    A single gradient may be nothing but roundings, and then has a wide limit. All gradients together may not.
    """

    def __init__(self) -> None:
        self._off = self._size = 0.0

    def take(self, leaf: Leaf) -> None:
        """Add a leaf if it is a gradient."""
        if leaf.name.startswith(gradient_of("")) and leaf.actual.numel():
            self._off += float((leaf.got - leaf.truth).abs().square().nan_to_num().sum())
            self._size += float(leaf.truth.abs().square().nan_to_num().sum())

    @property
    def fault(self) -> str:
        """What is wrong with the whole gradient, or ""."""
        if self._off <= WHOLE_GRADIENT**2 * self._size or self._size == 0:
            return ""
        off_by, allowed = format_beyond((self._off / self._size) ** 0.5, WHOLE_GRADIENT)
        return f"the gradient of all parameters is off by {off_by} (relative), more than {allowed}"


def leaves_of(case: Case, actual: Observation, reference: Reference) -> Iterator[Leaf]:
    """Yield all leaves of an observation, each with its expected value: the case's, or one that follows from others."""
    sequel = reference.sequel
    if sequel is None:
        for name, leaf in actual.leaves.items():
            expected = case.expected.leaves.get(name)
            yield Leaf(name, leaf, expected, case.baseline.leaves[name], expected, of_calls)
        return
    ours, theirs = sequel.of(actual.leaves), sequel.of(case.baseline.leaves)
    for name, leaf in actual.leaves.items():
        baseline, expected = case.baseline.leaves[name], case.expected.leaves.get(name)
        if name in ours and name in theirs:
            yield Leaf(name, leaf, ours[name], baseline, theirs[name], of_sequel(sequel.spacing(name), sequel.rounding))
        else:
            yield from _by_steps(Leaf(name, leaf, expected, baseline, expected, of_learning))


def _by_steps(leaf: Leaf) -> Iterator[Leaf]:
    """Yield a gradient step by step. The worst step has its own limit, as one step may have met a ReLU at its kink."""
    tensors = leaf.actual, leaf.expected, leaf.baseline
    comparable = all(isinstance(tensor, torch.Tensor) and tensor.dim() > 0 for tensor in tensors)
    if (
        not _is_gradient(leaf)
        or not comparable
        or len({tensor.shape for tensor in tensors}) > 1
        or len(leaf.actual) < 3
    ):
        yield leaf
        return
    off = (leaf.got - leaf.truth).abs().nan_to_num(torch.inf).square().reshape(len(leaf.actual), -1).sum(1)
    worst = int(off.argmax())
    for row in range(len(off)):
        one = leaf.row(row)
        yield replace(one, rule=of_worst_step) if row == worst else one


def _is_gradient(leaf: Leaf) -> bool:
    return leaf.name.startswith(gradient_of("")) or leaf.name == NORM


def rms(tensor: torch.Tensor) -> float:
    """Return the root mean square."""
    return float(tensor.abs().pow(2).mean().sqrt())
