"""The budget: what is left of it, what it went into, and the journal of decisions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autocompile.core.decision import Decision
from autocompile.core.document import LaneEntry
from autocompile.core.notices import Notice
from autocompile.core.progress import Listener

# What a child calls its phases, and what a user is told that the time went into.
_PURPOSES = {
    "build": "compiling",
    "compile": "compiling",
    "toolchain": "toolchain",
    "warm-up": "warming up",
    "verify": "verifying",
    "timing": "timing",
    "profile": "profiling",
    "loader": "profiling",
    "batch": "profiling",
    "pack": "packing",
    "start-up": "starting afresh",
}
OVERHEAD = "overhead"
_MEASURING = ("compiling", "toolchain", "warming up", "verifying", "timing", "packing", "starting afresh")


@dataclass(frozen=True)
class Work:
    """What one task took, by purpose, between two times on the run's clock, in seconds, of which it was paused some."""

    purposes: Mapping[str, float]
    began: float
    ended: float
    pauses: Sequence[tuple[float, float]] = ()

    @property
    def ran_s(self) -> float:
        """For how long it was under way."""
        return self.ended - self.began - sum(until - since for since, until in self.pauses)

    @property
    def times(self) -> tuple[float, ...]:
        """When it began or ended to be under way."""
        return self.began, self.ended, *(time_s for pause in self.pauses for time_s in pause)

    def runs_at(self, time_s: float) -> bool:
        """Whether it was under way then."""
        paused = any(since <= time_s < until for since, until in self.pauses)
        return self.began <= time_s < self.ended and not paused


class Ledger:
    """Keeps a run's time. `started` is when the run's clock began, on `clock`; the budget is in seconds.

    The budget is wall time. Tasks that run side by side do more seconds of work than pass meanwhile: `worked_s` counts
    the work, and `spent_s` the time that passed, of which each of k tasks under way has a k-th.
    """

    def __init__(
        self,
        budget_s: float,
        listener: Listener,
        *,
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
    ) -> None:
        self.budget_s = budget_s
        self._clock = clock
        self._started = clock() if started is None else started
        self._listener = listener
        self._works: list[Work] = []
        self.decisions: list[Decision] = []
        self.lanes: list[LaneEntry] = []
        self._notices: dict[str, str] = {}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._started

    def since_begin(self, time_s: float) -> float:
        """Seconds from the run's begin to a time on its clock."""
        return time_s - self._started

    def left_s(self, *, keeping_s: float = 0.0) -> float:
        """Seconds of the budget that are left, but for what is kept for later; never negative."""
        return max(0.0, self.budget_s - keeping_s - self.elapsed_s)

    def charge(
        self, phases_s: Mapping[str, float], span_s: tuple[float, float], pauses_s: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Book what a child did, by phase, and when it began, ended, and was paused, on the run's clock."""
        purposes: dict[str, float] = defaultdict(float)
        for phase, seconds in phases_s.items():
            purposes[_PURPOSES.get(phase.split()[0], OVERHEAD)] += seconds
        self._works.append(Work(purposes, *span_s, pauses_s))

    def worked_s(self) -> dict[str, float]:
        """Seconds of the children's work by purpose, whatever ran beside them; none of them is overhead."""
        return self._added_up(lambda _work: 1.0)

    def spent_s(self) -> dict[str, float]:
        """Seconds of the run's time by purpose; together they are all of it. What no child books is overhead."""
        spent = self._added_up(self._share)
        return {**spent, OVERHEAD: max(0.0, self.elapsed_s - sum(spent.values()))}

    def _added_up(self, share: Callable[[Work], float]) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for work in self._works:
            part = share(work)
            for purpose, seconds in work.purposes.items():
                total[purpose] += part * seconds
        total.pop(OVERHEAD, None)
        return dict(total)

    def _share(self, work: Work) -> float:
        """The part of a task's time that is its own: of a second in which k tasks were under way, a k-th."""
        if work.ran_s <= 0:
            return 1.0
        beside = [other for other in self._works if other.began < work.ended and work.began < other.ended]
        ends = sorted({time_s for other in beside for time_s in other.times})
        own_s = sum(
            (until - since) / sum(other.runs_at(since) for other in beside)
            for since, until in pairwise(ends)
            if work.runs_at(since)
        )
        return own_s / work.ran_s

    def machine_of(self, label: str) -> str:
        """Where this run last measured a candidate, "" for this machine: what was compiled for that lies there."""
        machines = [entry.machine for entry in self.lanes if entry.label == label and entry.doing == "measuring"]
        return machines[-1] if machines else ""

    def decide(self, action: str, subject: str, reason: str, *, saved_s: float = 0.0) -> None:
        """Write a decision into the journal, and tell it."""
        decision = Decision(round(self.elapsed_s, 2), action, subject, reason, round(saved_s, 1))
        self.decisions.append(decision)
        self._listener.on_decision(decision)

    def notice(self, notices: Iterable[Notice]) -> None:
        """Tell at once what the user should know first; the first on a subject is all that is told of it."""
        for notice in notices:
            if notice.subject not in self._notices:
                self._notices[notice.subject] = notice.text
                self._listener.on_notice(notice.text)

    @property
    def notices(self) -> tuple[str, ...]:
        """What was told so, in that order."""
        return tuple(self._notices.values())


def measuring_share(spent_s: Mapping[str, float]) -> float:
    """The share of a run's time that went into compiling, warming up, verifying or timing."""
    total = sum(spent_s.values())
    return sum(spent_s.get(purpose, 0.0) for purpose in _MEASURING) / total if total else 0.0
