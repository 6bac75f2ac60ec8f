"""What the outputs should be: float64 where the model runs so, on the samples and on random variants."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from torch import nn
from torch.utils import _pytree as pytree

from autocompile.workload.samples import Sample, clone, describe, named_leaves

MAX_CASES = 16
_PLAIN = (str, bytes, int, float, complex, bool, torch.dtype, torch.device)
_DEEPEST = 6


@dataclass(frozen=True)
class Observation:
    """All that a call did: its `output`, and the same flattened and named in `leaves`.

    `leaves` also holds the inputs and the model's buffers after the call; `structure` describes the output.
    """

    output: Any
    leaves: dict[str, Any]
    structure: str


@dataclass(frozen=True)
class Case:
    """One call to check: its arguments, what is expected, and what the baseline made of it.

    `expected` is in float64 where the reference is. `origin` tells which of several calls it is, or "".
    """

    sample: Sample
    expected: Observation
    baseline: Observation
    origin: str = ""


@dataclass(frozen=True)
class Reference:
    """All cases, and in which precision they are: `float64`, or the model's own where that fails."""

    cases: tuple[Case, ...]
    precision: str
    seed: int
    notes: tuple[str, ...] = ()

    @property
    def mutates_inputs(self) -> bool:
        """Whether the baseline writes into its arguments."""
        return any(writes_into_inputs(case.sample, case.baseline.leaves) for case in self.cases)

    def at_batch(self, size: int) -> Reference:
        """The same cases in batches of another size, which holds where samples are proved to be independent."""
        return replace(self, cases=tuple(_at_batch(case, size) for case in self.cases))

    def against(self, call: Callable[..., Any]) -> Reference:
        """The same cases with another baseline: what `call` makes of them."""
        cases = tuple(replace(case, baseline=observe(call, case.sample, self.seed)) for case in self.cases)
        return replace(self, cases=cases)

    def save(self, path: Path, *, with_outputs: bool) -> None:
        """Keep it for the trials; the outputs as the model returns them only where a metric needs them."""
        kept = self if with_outputs else replace(self, cases=tuple(_without_outputs(case) for case in self.cases))
        torch.save(kept, path, pickle_module=cloudpickle)

    @staticmethod
    def load(path: Path) -> Reference:
        """Read what `save` wrote."""
        return torch.load(path, weights_only=False)  # type: ignore[no-any-return]


def make_reference(model: Any, samples: tuple[Sample, ...], *, variants: int, seed: int) -> Reference:
    """Run the baseline and its float64 twin on one sample of each signature and on random variants.

    A variant has the shapes and dtypes of its sample and values drawn like the sample's own; one
    that the baseline itself rejects or answers with NaN says nothing and is left out.
    """
    chosen = _distinct(samples)
    generator = torch.Generator().manual_seed(seed)
    calls = chosen + [vary(sample, generator) for sample in chosen for _ in range(variants)]
    origins = _origins(samples, chosen, variants)
    twin: Any = None
    cases, notes, precision = [], [], "float64"
    for position, sample in enumerate(calls[:MAX_CASES]):
        is_variant = position >= len(chosen)
        try:
            baseline = observe(model, sample, seed)
        except Exception:
            if not is_variant:
                raise
            notes.append("the baseline rejects a random variant of the inputs; it was left out")
            continue
        if is_variant and not _finite(baseline.leaves):
            notes.append("the baseline answers a random variant with NaN or infinity; it was left out")
            continue
        expected = baseline
        if precision == "float64":
            try:
                twin = twin or _float64_twin(model)
                with _default_dtype(torch.float64):
                    expected = observe(twin, _as_float64(sample), seed)
            except Exception as fault:
                precision = "the baseline's own"
                notes.append(
                    f"no float64 reference: {type(fault).__name__}: {str(fault).splitlines()[0] if str(fault) else ''}"
                )
        cases.append(Case(sample, expected, baseline, origins[position]))
    if precision != "float64":
        cases = [replace(case, expected=case.baseline) for case in cases]
    return Reference(tuple(cases), precision, seed, tuple(dict.fromkeys(notes)))


def _origins(samples: Sequence[Sample], chosen: Sequence[Sample], variants: int) -> list[str]:
    """Which call each case is: of the samples, one of each signature, and then variants of these."""
    count = len(samples)
    places = [next(n for n, sample in enumerate(samples, 1) if sample is one) for one in chosen]
    if len(chosen) * (1 + variants) == 1:
        return [""]
    given = [f"sample {place} of {count}" for place in places] if count > 1 else ["the sample"]
    return [*given, *(f"a random variant of {one}" for one in given for _ in range(variants))]


def observe(call: Callable[..., Any], sample: Sample, seed: int) -> Observation:
    """Call, and keep all that it did.

    Runs on a copy of the sample, from one RNG state, and puts the buffers back, so that every call can
    be compared with every other.
    """
    own = clone(sample)
    torch.manual_seed(seed)
    with preserved_buffers(call), torch.no_grad():
        # Copied at once: CUDA graphs reuse their output's memory, and a buffer may be returned itself.
        output = pytree.tree_map(_detached, call(*own.args, **own.kwargs))
        leaves, spec = named_leaves(output)
        seen = dict(part for name, leaf in leaves for part in _opened(f"output{name}", leaf))
        for name, leaf in named_leaves((own.args, own.kwargs))[0]:
            if isinstance(leaf, torch.Tensor):
                seen[after_call(name)] = _detached(leaf)
        for name, buffer in _buffers_of(call):
            seen[f"buffer {name} after the call"] = _detached(buffer)
    return Observation(output, seen, str(spec))


def after_call(name: str) -> str:
    """Under which name an observation has what became of an argument."""
    return f"input{name} after the call"


def _at_batch(case: Case, size: int) -> Case:
    def picked(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
            return leaf
        return leaf.index_select(0, torch.arange(size, device=leaf.device) % leaf.shape[0])

    def observed(seen: Observation) -> Observation:
        leaves = {name: value if name.startswith("buffer") else picked(value) for name, value in seen.leaves.items()}
        return Observation(pytree.tree_map(picked, seen.output), leaves, seen.structure)

    sample = Sample(*pytree.tree_map(picked, (case.sample.args, case.sample.kwargs)))
    return Case(sample, observed(case.expected), observed(case.baseline), case.origin)


def writes_into_inputs(sample: Sample, seen: dict[str, Any]) -> bool:
    """Whether the call that left `seen` changed one of its arguments."""
    return any(
        isinstance(leaf, torch.Tensor) and not _alike(leaf, seen.get(after_call(name)))
        for name, leaf in named_leaves((sample.args, sample.kwargs))[0]
    )


def _alike(one: torch.Tensor, other: Any) -> bool:
    return isinstance(other, torch.Tensor) and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def _without_outputs(case: Case) -> Case:
    return replace(case, expected=replace(case.expected, output=None), baseline=replace(case.baseline, output=None))


@contextmanager
def preserved_buffers(call: Any) -> Iterator[None]:
    """Put the buffers of the module that runs beneath `call` back: the tensors themselves, and their values."""
    root = _module_of(call)
    modules = list(root.modules()) if root is not None else []
    before = [
        (module, name, buffer, buffer.detach().clone())
        for module in modules
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer, value in before:
                buffer.copy_(value)
                setattr(module, name, buffer)


def vary(sample: Sample, generator: torch.Generator) -> Sample:
    """The same call with other values: floats drawn like the sample's own, integers permuted along the first axis.

    Booleans, and tensors whose elements share memory, are kept.
    """

    def varied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.numel() < 2 or _overlaps(leaf):
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

    return Sample(*pytree.tree_map(varied, (sample.args, sample.kwargs)))


def _overlaps(leaf: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(leaf.shape, leaf.stride(), strict=True))


def _opened(name: str, leaf: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """What is in an object that pytree does not know (a cache, a user's dataclass): its attributes, else its type."""
    if isinstance(leaf, torch.Tensor):
        yield name, _detached(leaf)
    elif leaf is None or isinstance(leaf, _PLAIN):
        yield name, leaf
    elif isinstance(leaf, list | tuple) and depth < _DEEPEST:
        for position, item in enumerate(leaf):
            yield from _opened(f"{name}[{position}]", item, depth + 1)
    elif isinstance(leaf, dict) and depth < _DEEPEST:
        for key, item in leaf.items():
            yield from _opened(f"{name}[{key!r}]", item, depth + 1)
    elif hasattr(leaf, "__dict__") and not isinstance(leaf, type) and depth < _DEEPEST:
        yield f"{name} (type)", type(leaf).__qualname__
        for key, item in vars(leaf).items():
            yield from _opened(f"{name}.{key}", item, depth + 1)
    else:
        yield f"{name} (type)", type(leaf).__qualname__


def _distinct(samples: tuple[Sample, ...]) -> list[Sample]:
    first: dict[Any, Sample] = {}
    for sample in samples:
        first.setdefault(describe(sample), sample)
    return list(first.values())[: MAX_CASES // 2]


def _float64_twin(model: Any) -> Any:
    return copy.deepcopy(model).double() if isinstance(model, nn.Module) else model


def _as_float64(sample: Sample) -> Sample:
    def widened(leaf: Any) -> Any:
        return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return Sample(*pytree.tree_map(widened, (sample.args, sample.kwargs)))


def _buffers_of(call: Any) -> Iterator[tuple[str, torch.Tensor]]:
    module = _module_of(call)
    if module is not None:
        yield from module.named_buffers()


def _module_of(call: Any) -> nn.Module | None:
    module = call if isinstance(call, nn.Module) else getattr(call, "module", None)
    return module if isinstance(module, nn.Module) else None


def _detached(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _finite(seen: dict[str, Any]) -> bool:
    floats = [v for v in seen.values() if isinstance(v, torch.Tensor) and v.is_floating_point()]
    return all(bool(torch.isfinite(value).all()) for value in floats)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
