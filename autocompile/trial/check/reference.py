"""The reference for correct outputs, on the samples and on random variants, in float64 if the model can run in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from torch.utils import _pytree as pytree

from autocompile.trial.check.narrow_draws import NarrowDraws
from autocompile.trial.check.stored import Each, store, stored
from autocompile.workload.observation import Observation, Sequel, after_call, gradient_of, shown
from autocompile.workload.opaque import mapped
from autocompile.workload.samples import Sample, describe, named_leaves, named_parts
from autocompile.workload.step import Step

MAX_CASES = 16
# The relative distance from float64's gradients or outputs, for float32 and for lower precisions, beyond which the
# float64 run must have drawn other random numbers.
_FURTHEST, _FURTHEST_REDUCED = 0.1, 0.4


@dataclass(frozen=True)
class Case:
    """One call to check: its arguments, the expected observation, and the baseline's observation.

    `expected` is in float64 if the reference is. Otherwise `expected` is what the baseline did, and `baseline` is, if
    possible, the same with other rounding errors, because their size is needed. `origin` describes which of several
    calls it is, or is "".
    """

    sample: Sample
    expected: Observation
    baseline: Observation
    origin: str = ""


@dataclass(frozen=True)
class Reference:
    """All cases, and their precision: `float64`, or the model's own if float64 fails.

    `sequel`: what must follow from a part of an observation, or None. `random`: whether the baseline draws random
    numbers that change its results. The cases of a loaded reference are read from disk on access.
    """

    cases: Sequence[Case]
    precision: str
    seed: int
    notes: tuple[str, ...] = ()
    sequel: Sequel | None = None
    random: bool = False

    @property
    def mutates_inputs(self) -> bool:
        """Whether the baseline writes into its arguments."""
        return any(writes_into_inputs(case.sample, case.baseline.leaves) for case in self.cases)

    @property
    def first(self) -> Reference:
        """The same reference with its first case only."""
        return replace(self, cases=self.cases[:1])

    def at_batch(self, size: int) -> Reference:
        """Return the same cases with another batch size. This is valid only if samples are proved to be independent."""
        given = self.cases
        return replace(self, cases=Each(len(given), lambda number: _at_batch(given[number], size)))

    def against(self, step: Step) -> Reference:
        """Return the same cases with `step` as the baseline."""
        cases = tuple(replace(case, baseline=step.observe(case.sample, self.seed)) for case in self.cases)
        return replace(self, cases=cases)

    def redrawn(self, step: Step) -> Reference:
        """Return the same cases with the results of `step`: the baseline in a layout with another order of draws."""
        widened = step.in_float64() if self.precision == "float64" else None

        def again(case: Case) -> Case:
            own = replace(case, baseline=step.observe(case.sample, self.seed))
            if widened is None:
                return _in_own_precision(own, step, self.seed)
            return replace(own, expected=_observed_wide(widened, case.sample, self.seed, random=self.random))

        return replace(self, cases=tuple(map(again, self.cases)))

    def save(self, path: Path, *, with_outputs: bool) -> None:
        """Save the reference for the trials. `with_outputs`: keep the outputs as returned too, for a metric."""
        store(self.cases if with_outputs else [_without_outputs(case) for case in self.cases], path)
        torch.save((len(self.cases), replace(self, cases=())), path, pickle_module=cloudpickle)

    @staticmethod
    def load(path: Path) -> Reference:
        """Load a saved reference. Each case is read on access."""
        count, rest = torch.load(path, weights_only=False, mmap=True)
        return replace(rest, cases=stored(count, path))  # type: ignore[no-any-return]


def make_reference(
    step: Step, samples: tuple[Sample, ...], *, variants: int, seed: int, random: bool = False
) -> Reference:
    """Run the baseline and its float64 twin on one sample of each signature and on random variants.

    A variant has the shapes and dtypes of its sample, and random values like the sample's own. A variant that the
    baseline rejects, or for which it returns NaN, is left out. `random`: whether the baseline draws random numbers; its
    twin then has to draw the same ones.
    """
    chosen = _distinct(samples)
    generator = torch.Generator().manual_seed(seed)
    calls = chosen + [vary(sample, generator) for sample in chosen for _ in range(variants)]
    origins = _origins(samples, chosen, variants)
    widened: Step | None = None
    cases, notes, precision = [], [], "float64"
    for position, sample in enumerate(calls[:MAX_CASES]):
        is_variant = position >= len(chosen)
        try:
            baseline = step.observe(sample, seed)
        except Exception:
            if not is_variant:
                raise
            notes.append("the baseline rejects a random variant of the inputs; it was left out")
            continue
        if is_variant and not _finite(baseline.leaves):
            notes.append("the baseline returns NaN or infinity for a random variant of the inputs; it was left out")
            continue
        expected = baseline
        if precision == "float64":
            try:
                widened = widened or step.in_float64()
                expected = _observed_wide(widened, sample, seed, random=random)
            except Exception as fault:
                precision = "the baseline's own"
                notes.append(
                    f"no float64 reference: {type(fault).__name__}: {str(fault).splitlines()[0] if str(fault) else ''}"
                )
        cases.append(Case(sample, expected, baseline, origins[position]))
    if precision == "float64" and any(_draws_otherwise(case, random=random) for case in cases):
        precision = "the baseline's own"
        what = "gradients" if step.state.learns else "outputs"
        notes.append(f"no float64 reference: its {what} differ as if it drew other random numbers, as for dropout")
    if precision != "float64":
        cases = [_in_own_precision(case, step, seed) for case in cases]
    return Reference(tuple(cases), precision, seed, tuple(dict.fromkeys(notes)), step.sequel(seed), random)


def _in_own_precision(case: Case, step: Step, seed: int) -> Case:
    """Return the case with what the baseline did as the expected results.

    Only inexact numbers are taken from the baseline with other rounding errors. All else is compared exactly.
    """
    given = case.baseline
    try:
        shaken = step.observe_shaken(case.sample, seed)
    except RuntimeError:  # for example, if memory is short; the errors are then assumed
        shaken = None
    leaves = {name: _moved(leaf, shaken.leaves.get(name)) for name, leaf in given.leaves.items()} if shaken else {}
    return replace(case, expected=given, baseline=replace(given, leaves=leaves or given.leaves))


def _moved(given: Any, shaken: Any) -> Any:
    """Return the shaken leaf if its numbers are inexact and finite in the same places, else the given one."""
    if not isinstance(given, torch.Tensor) or not isinstance(shaken, torch.Tensor) or given.shape != shaken.shape:
        return given
    is_inexact = given.is_floating_point() or given.is_complex()
    return shaken if is_inexact and torch.equal(torch.isfinite(given), torch.isfinite(shaken)) else given


def _observed_wide(widened: Step, sample: Sample, seed: int, *, random: bool) -> Observation:
    """Return the observation of the float64 twin on a sample."""
    draws = NarrowDraws() if random else nullcontext()  # type: ignore[no-untyped-call]
    with default_dtype(torch.float64), draws:
        return widened.observe(as_float64(sample), seed)


def _draws_otherwise(case: Case, *, random: bool) -> bool:
    """Whether all gradients together (and the outputs, if random) differ from float64's by more than roundings."""
    off = size = 0.0
    reduced = False
    judged = (gradient_of(""), "output") if random else gradient_of("")
    for name, expected in case.expected.leaves.items():
        baseline = case.baseline.leaves.get(name)
        if not isinstance(baseline, torch.Tensor) or not baseline.is_floating_point():
            continue
        if name.startswith(judged) and baseline.shape == expected.shape:
            off += float((baseline - expected).abs().square().nan_to_num().sum())
            size += float(expected.abs().square().nan_to_num().sum())
            reduced = reduced or torch.finfo(baseline.dtype).bits < 32
    return off > (_FURTHEST_REDUCED if reduced else _FURTHEST) ** 2 * size


def _origins(samples: Sequence[Sample], chosen: Sequence[Sample], variants: int) -> list[str]:
    """Return a description of each case: first one sample of each signature, then the variants of these."""
    count = len(samples)
    places = [next(n for n, sample in enumerate(samples, 1) if sample is first) for first in chosen]
    if len(chosen) * (1 + variants) == 1:
        return [""]
    given = [f"sample {place} of {count}" for place in places] if count > 1 else ["the sample"]
    return [*given, *(f"a random variant of {place}" for place in given for _ in range(variants))]


def _at_batch(case: Case, size: int) -> Case:
    def picked(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
            return leaf
        return leaf.index_select(0, torch.arange(size, device=leaf.device) % leaf.shape[0])

    given = named_leaves((case.sample.args, case.sample.kwargs))[0]
    cut = {after_call(f"input{name}") for name, _leaf in given}  # but not what is in other objects

    def of_batch(whole: Observation) -> Observation:
        leaves = {
            name: picked(value) if name.startswith("output") or name in cut else value
            for name, value in whole.leaves.items()
        }
        return Observation(pytree.tree_map(picked, whole.output), leaves, whole.structure)

    sample = Sample(*pytree.tree_map(picked, (case.sample.args, case.sample.kwargs)))
    return Case(sample, of_batch(case.expected), of_batch(case.baseline), case.origin)


def writes_into_inputs(sample: Sample, leaves: dict[str, Any]) -> bool:
    """Whether the call with the observed `leaves` changed one of its arguments."""
    tensors = [(name, leaf) for name, leaf in named_parts(sample) if isinstance(leaf, torch.Tensor)]
    before = dict(part for name, leaf in tensors for part in shown(after_call(f"input{name}"), leaf))
    after = {name: leaf for name, leaf in leaves.items() if name.startswith("input")}
    return before.keys() != after.keys() or not all(_alike(value, after[name]) for name, value in before.items())


def _alike(before: torch.Tensor, after: Any) -> bool:
    return isinstance(after, torch.Tensor) and torch.equal(torch.nan_to_num(before), torch.nan_to_num(after))


def _without_outputs(case: Case) -> Case:
    return replace(case, expected=replace(case.expected, output=None), baseline=replace(case.baseline, output=None))


def vary(sample: Sample, generator: torch.Generator) -> Sample:
    """Return the same call with other values: random floats like the sample's own, integers permuted on the first axis.

    Booleans, and tensors whose elements share memory, are kept.
    """

    def varied(leaf: torch.Tensor) -> torch.Tensor:
        if leaf.layout != torch.strided or leaf.numel() < 2 or _overlaps(leaf):
            return leaf
        if leaf.is_floating_point():
            noise = torch.randn(leaf.shape, generator=generator).to(leaf.device)
            values = (noise * leaf.double().std().item() + leaf.double().mean().item()).to(leaf.dtype)
        elif leaf.dtype == torch.bool or leaf.is_complex():
            return leaf
        else:
            # Along the first axis only: columns may be ids of different tables.
            values = leaf[torch.randperm(leaf.shape[0], generator=generator).to(leaf.device)]
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device).copy_(values)

    return Sample(*mapped(varied, (sample.args, sample.kwargs)))


def _overlaps(leaf: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(leaf.shape, leaf.stride(), strict=True))


def _distinct(samples: tuple[Sample, ...]) -> list[Sample]:
    first: dict[Any, Sample] = {}
    for sample in samples:
        first.setdefault(describe(sample), sample)
    return list(first.values())[: MAX_CASES // 2]


def as_float64(sample: Sample) -> Sample:
    """Return the sample with its floating-point tensors in double precision."""

    def widened(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.double() if leaf.is_floating_point() else leaf

    return Sample(*mapped(widened, (sample.args, sample.kwargs)))


def _finite(leaves: dict[str, Any]) -> bool:
    floats = [v for v in leaves.values() if isinstance(v, torch.Tensor) and v.is_floating_point()]
    return all(bool(torch.isfinite(value).all()) for value in floats)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set torch's default dtype in the body."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
