"""A task's turn on a lane: waiting, running or ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from autocompile.core.errors import RunnerError
from autocompile.core.job import Job, Reply
from autocompile.runner.course import Course

if TYPE_CHECKING:
    from autocompile.runner.turns import Turns


class Turn:
    """A task's turn on a lane, as a `core.runner.PendingReply`.

    `had_company`: whether other children ran at the same time as its child. `was_lost`: whether its first child ended
    because the process that started it did.
    """

    def __init__(self, turns: Turns, job: Job, *, exclusive: bool) -> None:
        self.job = job
        self.exclusive = exclusive
        self.course: Course | None = None
        self.outcome: Reply | RunnerError | None = None
        self.submitted = time.monotonic()
        self.ended = 0.0
        self.had_company = self.was_lost = False
        self._turns = turns

    def answer(self) -> Reply:
        self._turns.wait_for([self])
        assert self.outcome is not None
        if isinstance(self.outcome, RunnerError):
            raise self.outcome
        return self.outcome

    def is_done(self) -> bool:
        self._turns.look()
        return self.outcome is not None

    def cancel(self) -> None:
        self._turns.cancel(self)

    @property
    def span_s(self) -> tuple[float, float]:
        assert self.outcome is not None
        return (self.course.began if self.course else self.ended), self.ended

    @property
    def pauses_s(self) -> tuple[tuple[float, float], ...]:
        return tuple(self.course.pauses) if self.course else ()
