"""The budget: what is left of it, what it went into, and the journal of decisions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from autocompile.core.decision import Decision
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
    "batch": "profiling",
    "pack": "packing",
    "start-up": "starting afresh",
}
OVERHEAD = "overhead"
_MEASURING = ("compiling", "toolchain", "warming up", "verifying", "timing", "packing", "starting afresh")


class Ledger:
    """Keeps a run's time. `started` is when the run's clock began, on `clock`; the budget is in seconds."""

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
        self._spent: dict[str, float] = defaultdict(float)
        self.decisions: list[Decision] = []
        self._notices: dict[str, str] = {}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._started

    def left_s(self, *, keeping_s: float = 0.0) -> float:
        """Seconds of the budget that are left, but for what is kept for later; never negative."""
        return max(0.0, self.budget_s - keeping_s - self.elapsed_s)

    def charge(self, phases_s: Mapping[str, float]) -> None:
        """Book what a child spent, by phase. What no child books is overhead."""
        for phase, seconds in phases_s.items():
            self._spent[_PURPOSES.get(phase.split()[0], OVERHEAD)] += seconds

    def spent_s(self) -> dict[str, float]:
        """Seconds by purpose; together they are the run's whole time."""
        booked = {purpose: s for purpose, s in self._spent.items() if purpose != OVERHEAD}
        return {**booked, OVERHEAD: max(0.0, self.elapsed_s - sum(booked.values()))}

    def decide(self, action: str, subject: str, reason: str, *, saved_s: float = 0.0) -> None:
        """Write a decision into the journal, and tell it."""
        decision = Decision(round(self.elapsed_s, 2), action, subject, reason, round(saved_s, 1))
        self.decisions.append(decision)
        self._listener.on_decision(decision)

    def notice(self, notices: Iterable[Notice]) -> None:
        """Tell at once what the user should know first; the first on a subject is all that is told of it."""
        for one in notices:
            if one.subject not in self._notices:
                self._notices[one.subject] = one.text
                self._listener.on_notice(one.text)

    @property
    def notices(self) -> tuple[str, ...]:
        """What was told so, in that order."""
        return tuple(self._notices.values())


def measuring_share(spent_s: Mapping[str, float]) -> float:
    """The share of a run's time that went into compiling, warming up, verifying or timing."""
    total = sum(spent_s.values())
    return sum(spent_s.get(purpose, 0.0) for purpose in _MEASURING) / total if total else 0.0
