"""The space of candidates for one workload on one machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from autocompile.core.candidate import Candidate, Value
from autocompile.core.plan import Plan
from autocompile.core.serde import to_json
from autocompile.space.dimension import Dimension
from autocompile.space.surroundings import Surroundings


@dataclass(frozen=True)
class Space:
    """The dimensions with the values that are open here; immutable, so narrowing creates a new space.

    `open_values` maps each dimension to its searched values, the default first. `baseline_runtime` runs the model
    unmodified, `plain_runtime` as `torch.compile(model)` does.
    """

    around: Surroundings
    open_values: Mapping[str, tuple[Value, ...]]
    dimensions: Sequence[Dimension]
    baseline_runtime: str
    plain_runtime: str

    def candidate(self, **values: Value) -> Candidate:
        """Return the canonical candidate: dimensions that do not apply or are not given take their defaults."""
        chosen: dict[str, Value] = {}
        for dimension in self.dimensions:
            default = self.default(dimension)
            applies = dimension.applies({**self.defaults(), **chosen})
            chosen[dimension.name] = values.get(dimension.name, default) if applies else default
        return Candidate(values=chosen)

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits, equal for equal open values."""
        return hashlib.sha256(to_json({name: list(v) for name, v in self.open_values.items()})).hexdigest()[:8]

    def baseline(self) -> Candidate:
        """Return the candidate of the unmodified model in eager."""
        return self.candidate(runtime=self.baseline_runtime)

    def plain_compile(self) -> Candidate:
        """Return the candidate of `torch.compile(model)`."""
        return self.candidate(runtime=self.plain_runtime)

    def plan(self, candidate: Candidate) -> Plan:
        """Return the plan of a candidate by folding its dimensions. Pure."""
        plan = Plan()
        for dimension in self.dimensions:
            if dimension.applies(candidate.values):
                plan = dimension.fold(plan, candidate[dimension.name], self.around)
        return plan

    def conflict(self, candidate: Candidate) -> str:
        """Return why these values cannot be combined, or ""."""
        reasons = (dimension.conflict(candidate.values, self.around) for dimension in self.dimensions)
        return next(filter(None, reasons), "")

    def changes(self, candidate: Candidate) -> dict[str, Value]:
        """Return the values that differ from the defaults: a candidate with fewer is simpler."""
        return {
            dimension.name: candidate[dimension.name]
            for dimension in self.dimensions
            if candidate[dimension.name] != self._defaults[dimension.name]
        }

    def label(self, candidate: Candidate) -> str:
        """Return a short name: `eager`, `inductor`, `inductor mode=max-autotune amp=bf16`."""
        others = [f"{name}={value}" for name, value in self.changes(candidate).items() if name != "runtime"]
        return " ".join([str(candidate["runtime"]), *others])

    def canonical(self, candidate: Candidate) -> Candidate:
        """Return the simplest open candidate that builds the same program."""
        return self._simplest.get(self.plan(candidate).key, candidate)

    @cached_property
    def remedies(self) -> frozenset[tuple[str, Value]]:
        """The values that are tried only after a failure that they may avoid, each with its dimension's name."""
        choices = ((dimension.name, dimension.choices(self.around)) for dimension in self.dimensions)
        return frozenset((name, choice.value) for name, some in choices for choice in some if choice.is_remedy)

    @cached_property
    def programs(self) -> tuple[tuple[Candidate, Plan], ...]:
        """All distinct programs, each with its simplest candidate."""
        by_key: dict[str, tuple[Candidate, Plan]] = {}
        for candidate in sorted(self._candidates({}), key=lambda c: len(self.changes(c))):
            if not self.conflict(candidate):
                plan = self.plan(candidate)
                by_key.setdefault(plan.key, (candidate, plan))
        return tuple(by_key.values())

    def _candidates(self, chosen: dict[str, Value]) -> Iterator[Candidate]:
        """Yield all canonical candidates that begin with these values: a dimension varies only where it applies."""
        if len(chosen) == len(self.dimensions):
            yield Candidate(values=chosen)
            return
        following = self.dimensions[len(chosen)]
        applies = following.applies({**self._defaults, **chosen})
        for value in self.open_values[following.name] if applies else (self._defaults[following.name],):
            yield from self._candidates({**chosen, following.name: value})

    @cached_property
    def _simplest(self) -> dict[str, Candidate]:
        return {plan.key: candidate for candidate, plan in self.programs}

    def default(self, dimension: Dimension) -> Value:
        """Return the value that leaves the model unmodified."""
        return dimension.choices(self.around)[0].value

    def defaults(self) -> dict[str, Value]:
        """Return the default of every dimension."""
        return dict(self._defaults)

    @cached_property
    def _defaults(self) -> dict[str, Value]:
        return {dimension.name: self.default(dimension) for dimension in self.dimensions}
