"""The budget: how much of it is left, what it was spent on, and the journal of decisions."""

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

# The purposes that are reported to users, by the names of a child's phases.
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
    """What one task took: seconds by purpose, and its begin, end and pauses on the run's clock, in seconds."""

    purposes: Mapping[str, float]
    began: float
    ended: float
    pauses: Sequence[tuple[float, float]] = ()

    @property
    def ran_s(self) -> float:
        """For how long it was under way, without pauses."""
        return self.ended - self.began - sum(until - since for since, until in self.pauses)

    @property
    def times(self) -> tuple[float, ...]:
        """The times at which it began, ended, was paused or went on."""
        return self.began, self.ended, *(time_s for pause in self.pauses for time_s in pause)

    def runs_at(self, time_s: float) -> bool:
        """Whether it was under way, and not paused, at that time."""
        paused = any(since <= time_s < until for since, until in self.pauses)
        return self.began <= time_s < self.ended and not paused


class Ledger:
    """Keeps a run's time. `started` is when the run began, on `clock`; the budget is in seconds.

    The budget is wall time. `kept_s` was taken from it for another run that follows. Tasks that run side by side do
    more seconds of work than pass on the clock. `worked_s` counts the work. `spent_s` counts the time that passed, and
    divides it equally among the tasks that are under way.
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
        self.kept_s = 0.0
        self._clock = clock
        self._started = clock() if started is None else started
        self._listener = listener
        self._works: list[Work] = []
        self.decisions: list[Decision] = []
        self.lanes: list[LaneEntry] = []
        self._notices: dict[str, str] = {}
        # The subjects of the notices that the user has seen, also in the run before this one.
        self._told: set[str] = set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._started

    def since_begin(self, time_s: float) -> float:
        """Return the seconds from the run's begin to a time on its clock."""
        return time_s - self._started

    def left_s(self, *, keeping_s: float = 0.0) -> float:
        """Return the seconds of the budget that are left, without `keeping_s` for later steps; never negative."""
        return max(0.0, self.budget_s - keeping_s - self.elapsed_s)

    def keep(self, seconds: float) -> None:
        """Take a part of the budget from this run, and keep it for another run that follows."""
        self.budget_s -= seconds
        self.kept_s += seconds

    def next(self, share: float) -> Ledger:
        """Return the ledger of a run that follows now, with this share of what is left and what was kept.

        Notices that were reported in this run are not reported again.
        """
        ledger = Ledger(share * self.whole_left_s, self._listener, clock=self._clock)
        ledger._told = set(self._told)
        return ledger

    @property
    def whole_left_s(self) -> float:
        """The seconds that are left of the budget, with what was kept; never negative."""
        return max(0.0, self.budget_s + self.kept_s - self.elapsed_s)

    def charge(
        self, phases_s: Mapping[str, float], span_s: tuple[float, float], pauses_s: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Book a child's seconds by phase, and when it began, ended, and was paused, on the run's clock."""
        purposes: dict[str, float] = defaultdict(float)
        for phase, seconds in phases_s.items():
            purposes[_PURPOSES.get(phase.split()[0], OVERHEAD)] += seconds
        self._works.append(Work(purposes, *span_s, pauses_s))

    def worked_s(self) -> dict[str, float]:
        """Return the seconds of the children's work by purpose, whatever ran at the same time; without overhead."""
        return self._added_up(lambda _work: 1.0)

    def spent_s(self) -> dict[str, float]:
        """Return the seconds of the run's time by purpose, which add up to the elapsed time; the rest is overhead."""
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
        """Return the share of a task's time that is charged to it: 1/k of a second in which k tasks are under way."""
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
        """Return the machine that measured a candidate last in this run and has its compiled files; "" for this one."""
        machines = [entry.machine for entry in self.lanes if entry.label == label and entry.doing == "measuring"]
        return machines[-1] if machines else ""

    def decide(self, action: str, subject: str, reason: str, *, saved_s: float = 0.0) -> None:
        """Write a decision into the journal, and report it to the listener."""
        decision = Decision(round(self.elapsed_s, 2), action, subject, reason, round(saved_s, 1))
        self.decisions.append(decision)
        self._listener.on_decision(decision)

    def notice(self, notices: Iterable[Notice]) -> None:
        """Report notices to the user at once; only the first notice on a subject is reported."""
        for notice in notices:
            if notice.subject in self._notices:
                continue
            self._notices[notice.subject] = notice.text
            if notice.subject not in self._told:
                self._told.add(notice.subject)
                self._listener.on_notice(notice.text)

    def notice_on(self, subject: str) -> str:
        """Return the notice that was reported on a subject, or ""."""
        return self._notices.get(subject, "")

    @property
    def notices(self) -> tuple[str, ...]:
        """The reported notices, in order."""
        return tuple(self._notices.values())


def measuring_share(spent_s: Mapping[str, float]) -> float:
    """Return the share of a run's time that was spent on compiling, measuring and packing candidates."""
    total = sum(spent_s.values())
    return sum(spent_s.get(purpose, 0.0) for purpose in _MEASURING) / total if total else 0.0
