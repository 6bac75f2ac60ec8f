"""Simulated lanes on a virtual clock: which tasks run at the same time, and when each ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autocompile.core.errors import RunnerError
from autocompile.core.job import Reply


class VirtualClock:
    """A clock that advances only when a task spends time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class SimulatedTask:
    """A `core.runner.PendingReply` whose `reply` and duration in `seconds` are known in advance."""

    reply: Reply
    seconds: float
    exclusive: bool
    name: str
    lanes: SimulatedLanes
    began: float | None = None
    ended: float | None = None
    is_cancelled: bool = False

    def answer(self) -> Reply:
        self.lanes.wait_for([self])
        if self.is_cancelled:
            raise RunnerError("the task was cancelled")
        return self.reply

    def is_done(self) -> bool:
        self.lanes.catch_up()
        return self.ended is not None

    def cancel(self) -> None:
        self.lanes.cancel(self)

    @property
    def span_s(self) -> tuple[float, float]:
        assert self.ended is not None
        return self.ended if self.began is None else self.began, self.ended

    @property
    def pauses_s(self) -> tuple[tuple[float, float], ...]:
        return ()


@dataclass
class SimulatedLanes:
    """Starts tasks in the order in which they were added, as soon as a lane is free. An exclusive task runs alone.

    `on_end` is called for each task that has run to its end, in the order of the clock.
    """

    count: int
    clock: VirtualClock
    on_end: Callable[[SimulatedTask], None]
    _waiting: deque[SimulatedTask] = field(default_factory=deque)
    _running: list[SimulatedTask] = field(default_factory=list)

    def add(self, task: SimulatedTask) -> None:
        """Run a task now, or as soon as a lane is free for it."""
        self.catch_up()
        self._waiting.append(task)
        self._begin_waiting(self.clock.now)

    def wait_for(self, tasks: Sequence[SimulatedTask]) -> SimulatedTask:
        """Advance the clock until one of these tasks has ended, and return the task that ended first."""
        self.catch_up()
        while all(task.ended is None for task in tasks):
            self._end_next()
        return min((task for task in tasks if task.ended is not None), key=lambda task: task.ended or 0.0)

    def catch_up(self) -> None:
        """End all tasks that are over by now."""
        while self._running and self._next_end() <= self.clock.now:
            self._end_next()

    def cancel(self, task: SimulatedTask) -> None:
        """End a task now, unless it has already ended, and start the tasks that waited for its lane."""
        self.catch_up()
        if task.ended is not None:
            return
        task.is_cancelled, task.ended = True, self.clock.now
        (self._waiting if task in self._waiting else self._running).remove(task)
        self._begin_waiting(self.clock.now)

    def _begin_waiting(self, now: float) -> None:
        while self._waiting and self._has_room(self._waiting[0]):
            task = self._waiting.popleft()
            task.began = now
            self._running.append(task)

    def _has_room(self, task: SimulatedTask) -> bool:
        if task.exclusive or any(other.exclusive for other in self._running):
            return not self._running
        return len(self._running) < self.count

    def _next_end(self) -> float:
        return min(map(_end, self._running))

    def _end_next(self) -> None:
        task = min(self._running, key=_end)
        task.ended = _end(task)
        self.clock.now = max(self.clock.now, task.ended)
        self._running.remove(task)
        self.on_end(task)
        self._begin_waiting(task.ended)


def _end(task: SimulatedTask) -> float:
    assert task.began is not None
    return task.began + task.seconds
