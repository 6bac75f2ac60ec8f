"""A trial: one candidate and all its measurements."""

from __future__ import annotations

from typing import Literal

from autocompile.core.candidate import Candidate
from autocompile.core.outcome import Measurement, Outcome
from autocompile.core.plan import Plan
from autocompile.core.serde import Record

Origin = Literal["baseline", "plain", "seed", "search"]


class Trial(Record, frozen=True):
    """A candidate, why it was tried (`origin`), its screening `outcome`, and its `finals` in fresh processes.

    `served_s`: seconds of a start as in production, if that was measured.
    """

    number: int
    label: str
    candidate: Candidate
    plan: Plan
    origin: Origin
    outcome: Outcome
    changes: int
    finals: tuple[Measurement, ...] = ()
    served_s: float | None = None

    @property
    def measurement(self) -> Measurement | None:
        """The screening measurement, or None if it failed."""
        return self.outcome if isinstance(self.outcome, Measurement) else None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """One measurement per process that counts: the screening and the finals, or only the finals if there are two.

        A finalist was selected by its screening, which is therefore biased in its favour. Processes that were timed
        while other programs used the host count only if all of these were.
        """
        if self.measurement is None:
            return ()
        counted = self.finals if len(self.finals) > 1 else (self.measurement, *self.finals)
        return tuple(one for one in counted if not one.contamination.noisy) or counted

    @property
    def is_noisy(self) -> bool:
        """Whether other programs used the host in all processes that count."""
        return any(one.contamination.noisy for one in self.measurements)

    @property
    def batch_factor(self) -> float:
        """Samples per call of the candidate, divided by samples per call of the baseline."""
        assert self.measurement is not None
        return self.measurement.batch_factor

    @property
    def startup_s(self) -> float:
        """The start-up time of a cold process, from the screening, whose compiler cache was empty."""
        assert self.measurement is not None
        return self.measurement.startup.total_s
