"""Records of candidates under way, and the machines that they run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autocompile.core.candidate import Candidate
from autocompile.core.document import LaneEntry
from autocompile.core.job import CompiledAhead, Limits, Packed
from autocompile.core.outcome import Failure, Measurement
from autocompile.search.archive import Claim
from autocompile.search.errand import Errand
from autocompile.search.ledger import Ledger
from autocompile.search.packages import Packing
from autocompile.search.precompiled import Compiling


@dataclass(frozen=True)
class Ahead:
    """A candidate that compiles within `limits`, with their reason (`bound`); `alone`: no other task runs meanwhile."""

    claim: Claim
    machine: int
    half: Packing | Compiling
    limits: Limits
    bound: str
    lane: int
    alone: bool


@dataclass(frozen=True)
class Ready:
    """A candidate that is ready to be measured, `since` when after the run's begin, with its compiled program."""

    claim: Claim
    machine: int
    since: float
    half: Packing | Compiling | None = None
    made: Packed | CompiledAhead | None = None

    def completed(self, measured: Measurement | Failure) -> Measurement | Failure:
        """Return the outcome, with the time of compiling added."""
        if isinstance(self.half, Packing) and isinstance(self.made, Packed):
            return self.half.completed(self.made, measured)
        if isinstance(self.half, Compiling) and isinstance(self.made, CompiledAhead):
            return self.half.completed(self.made, measured)
        return measured


@dataclass(frozen=True)
class Timed:
    """A candidate that is being measured, and the reason for its time limit."""

    ready: Ready
    errand: Errand[Measurement]
    bound: str


def words(
    label: Callable[[Candidate], str],
    names: tuple[str, ...],
    timed: list[Timed],
    ahead: list[Ahead],
    ready: list[Ready],
) -> tuple[str, ...]:
    """Return what every lane does, in words; `names` are those of the machines."""

    def on(machine: int) -> str:
        return f" on {names[machine]}" if machine else ""

    measured = [f"measuring {label(one.ready.claim.candidate)}{on(one.ready.machine)}" for one in timed]
    compiled = [f"compiling {label(one.claim.candidate)}{on(one.machine)}" for one in ahead]
    return *measured, *compiled, *(f"{label(one.claim.candidate)} waits to be measured" for one in ready)


def lane_entry(ledger: Ledger, label: str, machine: str, done: Ahead | Timed, measured: object = None) -> LaneEntry:
    """Return the report's entry for a finished task of a lane."""
    is_timed = isinstance(done, Timed)
    pending = done.errand.pending if isinstance(done, Timed) else done.half.errand.pending
    began, ended = map(ledger.since_begin, pending.span_s)
    contamination = measured.contamination if isinstance(measured, Measurement) else None
    return LaneEntry(
        lane=0 if isinstance(done, Timed) else done.lane,
        label=label,
        doing="measuring" if is_timed else "compiling",
        began_s=round(began, 2),
        ended_s=round(ended, 2),
        waited_s=round(max(0.0, began - done.ready.since), 2) if isinstance(done, Timed) else 0.0,
        paused_s=round(sum(until - from_ for from_, until in pending.pauses_s), 2),
        noisy=contamination is not None and contamination.noisy,
        throttled=contamination.throttled if contamination else "",
        machine=machine,
    )
