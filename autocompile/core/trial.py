"""One candidate and all that was measured of it."""

from __future__ import annotations

from typing import Literal

from autocompile.core.candidate import Candidate
from autocompile.core.estimate import Estimate, combine_processes
from autocompile.core.outcome import Measurement, Outcome
from autocompile.core.plan import Plan
from autocompile.core.serde import Record

Origin = Literal["baseline", "plain", "seed", "search"]


class Trial(Record):
    """A candidate, why it was tried (`origin`), its screening `outcome`, and its `finals` in fresh processes."""

    number: int
    label: str
    candidate: Candidate
    plan: Plan
    origin: Origin
    outcome: Outcome
    changes: int
    finals: tuple[Measurement, ...] = ()

    @property
    def measurement(self) -> Measurement | None:
        """The screening measurement, or None if it failed."""
        return self.outcome if isinstance(self.outcome, Measurement) else None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All processes' measurements; the finals replace the screening, which was coarser."""
        if self.finals:
            return self.finals
        return (self.outcome,) if isinstance(self.outcome, Measurement) else ()

    @property
    def ratio(self) -> Estimate:
        """Candidate time over baseline time, from all processes. Only for trials that were measured."""
        return combine_processes(m.ratio for m in self.measurements)

    @property
    def startup_s(self) -> float:
        """What a cold process pays once. From the screening, whose compiler cache was empty."""
        assert self.measurement is not None
        return self.measurement.startup.total_s
